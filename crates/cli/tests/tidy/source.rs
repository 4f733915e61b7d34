//! As much of Rust's syntax as the style rules need: text with comments and literals blanked out,
//! words, and where functions begin and end.

/// A function and its length.
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// Line on which it begins, from 1.
    pub(crate) line: usize,
    /// Lines from `fn` to the closing brace.
    pub(crate) lines: usize,
}

/// The source with comments, strings and character literals replaced by spaces; lines stay lines.
pub(crate) fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let length = literal(&chars[at..], at.checked_sub(1).map(|before| chars[before]));
        match length {
            0 => {
                out.push(chars[at]);
                at += 1;
            }
            length => {
                let end = (at + length).min(chars.len());
                out.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
                at = end;
            }
        }
    }
    out
}

/// Length of the comment or literal that begins here; 0 if none does.
fn literal(text: &[char], before: Option<char>) -> usize {
    match text {
        ['/', '/', ..] => text.iter().position(|&c| c == '\n').unwrap_or(text.len()),
        ['/', '*', ..] => block_comment(text),
        ['"', ..] => quoted(text, '"'),
        // A lifetime has no closing quote after its first character.
        ['\'', '\\', ..] => quoted(text, '\''),
        ['\'', _, '\'', ..] => 3,
        ['r', '"' | '#', ..] if !before.is_some_and(is_word) => raw_string(text, 1),
        ['b' | 'c', 'r', '"' | '#', ..] if !before.is_some_and(is_word) => raw_string(text, 2),
        _ => 0,
    }
}

fn block_comment(text: &[char]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < text.len() {
        match text[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] if depth == 1 => return at + 2,
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    text.len()
}

fn quoted(text: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn raw_string(text: &[char], prefix: usize) -> usize {
    let hashes = text[prefix..].iter().take_while(|&&c| c == '#').count();
    if text.get(prefix + hashes) != Some(&'"') {
        // A raw identifier, `r#type`.
        return 0;
    }
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = prefix + hashes + 1;
    let close = text[body..].windows(end.len()).position(|window| window == end);
    close.map_or(text.len(), |at| body + at + end.len())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The words of a line, without what stands between them.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

/// The functions of blanked source in rustfmt's layout: one ends with the first brace at the
/// indentation of its `fn`.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let mut rest = words(line).skip_while(|word| *word != "fn");
        let (Some(_), Some(name)) = (rest.next(), rest.next()) else { continue };
        let indent = line.len() - line.trim_start().len();
        let closing = format!("{}}}", " ".repeat(indent));
        let one_line = line.trim_end().ends_with(['}', ';']);
        let end = lines[i..].iter().position(|line| {
            // A declaration without a body ends with its semicolon, a body with its brace.
            line.trim_end() == closing || line.starts_with(&(closing.clone() + ")"))
        });
        if let (false, Some(end)) = (one_line, end) {
            found.push(Function { name: name.to_owned(), line: i + 1, lines: end + 1 });
        }
    }
    found
}

#[test]
fn literals_and_comments_are_blanked() {
    let code =
        "let a = \"unsafe // \\\" x\"; // unsafe\nlet b = r#\"un\"safe\"#; /* a /* b */ c */ fn";
    let blanked = blank(code);
    assert!(!blanked.contains("safe"), "{blanked}");
    assert!(blanked.ends_with(" fn") && blanked.contains("let b ="), "{blanked}");
    assert_eq!(blanked.lines().count(), 2);
    assert_eq!(blank("fn a<'x>(c: &'x str) -> char { '\"' }").find('"'), None);
    assert!(blank("for r in rows { br; }").contains("rows"));
}

#[test]
fn functions_are_measured() {
    let code = "impl A {\n    fn one(&self) {\n        {\n        }\n    }\n\n    fn two();\n}\n\
                fn three() {\n}\n";
    let found: Vec<(String, usize, usize)> =
        functions(code).into_iter().map(|f| (f.name, f.line, f.lines)).collect();
    assert_eq!(found, [("one".into(), 2, 4), ("three".into(), 9, 2)]);
}
