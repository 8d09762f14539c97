/** Lists that a broker answers page by page. */

/** Some entries of a list. */
export interface Page<T> {
  items: T[];
  /** With it as `cursor`, a list begins after this page. Absent at the end. */
  nextCursor?: string;
}

/** Options of a list. */
export interface ListOptions {
  signal?: AbortSignal | undefined;
  /** Entries of a page at most, 1 to 1,000. */
  pageSize?: number;
  /** Where to begin: the `nextCursor` of a page. */
  cursor?: string;
}

/**
 * A list, whose pages are fetched as a loop needs them: `for await (const item of list)`.
 *
 * Each loop begins anew. A page may have fewer entries than asked for, and even none.
 */
export class List<T> implements AsyncIterable<T> {
  /** @internal */
  constructor(private readonly fetch: (cursor: string | undefined) => Promise<Page<T>>, private readonly cursor: string | undefined) {}

  async *[Symbol.asyncIterator](): AsyncIterator<T> {
    for await (const page of this.pages()) yield* page.items;
  }

  /** The pages, for those who show one at a time. */
  async *pages(): AsyncIterable<Page<T>> {
    let cursor = this.cursor;
    do {
      const page = await this.fetch(cursor);
      yield page;
      cursor = page.nextCursor;
    } while (cursor !== undefined);
  }

  /** All entries in memory. */
  async toArray(): Promise<T[]> {
    const items: T[] = [];
    for await (const page of this.pages()) items.push(...page.items);
    return items;
  }
}
