/** Talks to clients/conformance/lab.py, which starts these tests. */

export async function lab(path, asked = {}) {
  const response = await fetch(process.env.LAB + path, { method: "POST", body: JSON.stringify(asked) });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${path}: ${JSON.stringify(answer)}`);
  return answer;
}
