// Colours for a line of code, by its file's suffix: comments, strings, numbers, keywords. Each line stands for itself:
// what began on an earlier one, as the middle of a long string does, is not known.

/** Longer lines stay plain. */
const CHARS = 400;

const WORDS =
  "False|None|True|abstract|and|as|async|await|bool|break|case|catch|char|class|const|continue|def|default|defer|del|do|double|elif|else|enum|except|export|extends|false|final|finally|float|fn|for|from|func|function|go|if|impl|implements|import|in|int|interface|is|let|loop|match|mod|mut|new|nil|not|null|of|or|package|pass|private|protected|pub|public|raise|return|select|self|static|struct|super|switch|then|this|throw|trait|true|try|type|typeof|use|using|var|void|where|while|with|yield";
const STARRED = "/\\*.*?(?:\\*/|$)";
const SLASHES = `//.*|${STARRED}|^\\s*\\*(?:[ /].*)?$`;
const HASH = "(?<!\\S)#.*";
const SINGLE = "|'(?:\\\\.|[^'\\\\])*'";

const rule = (comment, string = "", words = "false|none|null|true", flags = "g") =>
  new RegExp(`(${comment})|("(?:\\\\.|[^"\\\\])*"${string})|\\b(\\d[\\w.]*)|\\b(?:${words})\\b`, flags);
const code = (comment, string, flags) => rule(comment, string, WORDS, flags);
const RULES = [
  [/\.rs$/, code(SLASHES, "|'(?:\\\\[^']+|[^'\\\\])'")],
  [/\.([cm]?[jt]sx?|go|java|kts?|[ch](pp|s)?|cc|swift|scala|php|dart|proto|zig)$/, code(SLASHES, `${SINGLE}|\`[^\`]*\``)],
  [/\.(py|rb|sh|bash|pl|exs?|tf)$|(^|\/)(Makefile|Dockerfile)$/, code(HASH, SINGLE)],
  [/\.(sql|lua|hs)$/, code("--.*", SINGLE, "gi")],
  [/\.(ya?ml|toml|json|ini|conf)$/, rule(HASH, SINGLE)],
  [/\.(css|scss|less)$/, rule(STARRED, SINGLE)],
  [/\.(html?|xml|svg|vue)$/, rule("<!--.*?(?:-->|$)")],
];

/** What colours lines of this file: for each a list of `[text, class]`; nothing where its language is not known. */
export function coloursOf(path) {
  const found = RULES.find(([names]) => names.test(path))?.[1];
  return (
    found &&
    ((text) => {
      const out = [];
      let from = 0;
      for (const one of text.length > CHARS ? [] : text.matchAll(found)) {
        const name = one[1] ? "muted" : one[2] || one[3] ? "str" : "key";
        const last = out.at(-1);
        const between = text.slice(from, one.index);
        // Fewer elements: two of a kind with a blank between them are one.
        if (last?.[1] === name && !between.trim()) last[0] += between + one[0];
        else out.push([between], [one[0], name]);
        from = one.index + one[0].length;
      }
      return [...out, [text.slice(from)]].filter(([part]) => part);
    })
  );
}
