#!/bin/sh
# Puts beside the pages of the built site what programs read: each page as the Markdown that it is made of, and llms.txt, an index of
# docs/SUMMARY.md with the first sentence of each page. `make docs` calls it.
#   deploy/site-text.sh [target/site]
set -eu
cd "$(dirname "$0")/../docs"
site=${1:-../target/site}
case $site in /* | ../*) ;; *) site=../$site ;; esac

# The first sentence of a page: of what follows its heading, without links and marks.
sentence() {
  awk '/^#/ || /^<!--/ || (/^$/ && !text) { next } /^$/ { exit } { text = text (text ? " " : "") $0 } END { print text }' "$1" |
    sed -E 's/\[([^]]*)\]\([^)]*\)/\1/g; s/[*`]//g; s/([.?]) .*/\1/'
}

mkdir -p "$site"
find . -name '*.md' ! -name SUMMARY.md | while read -r page; do
  mkdir -p "$site/$(dirname "$page")"
  cp "$page" "$site/$page"
done

{
  printf '# dwell\n\n> %s\n' "$(sentence README.md)"
  sed -nE '1d; s/^# (.*)/\n## \1/p; s/^---$/\n## More/p; s/.*\[(.*)\]\((.*)\)$/\1|\2/p' SUMMARY.md | while IFS='|' read -r title page; do
    if [ -n "$page" ]; then printf -- '- [%s](%s): %s\n' "$title" "$page" "$(sentence "$page")"; else printf '%s\n' "$title"; fi
  done
} > "$site/llms.txt"
