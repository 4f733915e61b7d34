//! A finding: which rule, in which call, about which object; as text and as JSON.

use std::fmt::{self, Write as _};

use crate::rule::Rule;

/// Where in the program a call was made: a code address, 0 if not known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Site(pub u64);

/// A call of the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Call {
    /// The function's name in C.
    pub name: &'static str,
    /// Where it was called.
    pub site: Site,
}

/// What is wrong with a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The rule that is broken.
    pub rule: Rule,
    /// The call in which it came to light.
    pub call: Call,
    /// The object, as people name it: `QP 17`, `CQ 2`, `MR lkey 0x1234`.
    pub object: String,
    /// The work request, if it is about one.
    pub wr_id: Option<u64>,
    /// What was found, with the numbers.
    pub found: String,
    /// The earlier call that it goes back to: the post, or the creation.
    pub origin: Option<Call>,
}

/// Writes `text` as a JSON string.
fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if u32::from(c) < 0x20 => {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

impl Finding {
    /// The lines that a person reads; `locate` gives a place its name.
    pub fn text(&self, locate: &dyn Fn(Site) -> String) -> String {
        let place = |call: &Call| match call.site {
            Site(0) => call.name.to_owned(),
            site => format!("{} at {}", call.name, locate(site)),
        };
        let Self { rule, call, object, wr_id, found, origin } = self;
        let mut out = format!("crocevia check: {} {}: {object}", rule.code(), call.name);
        // Writing to a string does not fail.
        let _ = match wr_id {
            Some(wr_id) => write!(out, ", wr_id {wr_id:#x}: {}", rule.title()),
            None => write!(out, ": {}", rule.title()),
        };
        let _ = write!(out, "\n    found:    {found}\n    expected: {}", rule.expected());
        let _ = write!(out, "\n    to do:    {}", rule.remedy());
        let _ = write!(out, "\n    in {}", place(call));
        if let Some(origin) = origin {
            let _ = write!(out, "; goes back to {}", place(origin));
        }
        out.push('\n');
        out
    }

    /// One line of JSON, without the newline.
    pub fn json(&self, pid: u32, locate: &dyn Fn(Site) -> String) -> String {
        let mut out = String::from("{\"finding\":");
        let field = |out: &mut String, name: &str, value: &str| {
            let _ = write!(out, ",\"{name}\":");
            quote(out, value);
        };
        quote(&mut out, self.rule.code());
        let _ = write!(out, ",\"pid\":{pid}");
        field(&mut out, "rule", self.rule.word());
        field(&mut out, "call", self.call.name);
        field(&mut out, "at", &locate(self.call.site));
        field(&mut out, "object", &self.object);
        if let Some(wr_id) = self.wr_id {
            let _ = write!(out, ",\"wr_id\":{wr_id}");
        }
        field(&mut out, "message", self.rule.title());
        field(&mut out, "found", &self.found);
        field(&mut out, "expected", self.rule.expected());
        field(&mut out, "to_do", self.rule.remedy());
        if let Some(origin) = &self.origin {
            field(&mut out, "origin_call", origin.name);
            field(&mut out, "origin_at", &locate(origin.site));
        }
        out.push('}');
        out
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&|site| format!("{:#x}", site.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding() -> Finding {
        Finding {
            rule: Rule::MrInUse,
            call: Call { name: "ibv_dereg_mr", site: Site(16) },
            object: "MR lkey 0x1".to_owned(),
            wr_id: Some(7),
            found: "a \"quote\",\n\\ and \u{1}".to_owned(),
            origin: None,
        }
    }

    #[test]
    fn text_has_code_call_and_object_in_its_first_line() {
        let text = finding().text(&|site| format!("prog+{:#x}", site.0));
        let first = text.lines().next().unwrap();
        assert!(first.starts_with("crocevia check: C007 ibv_dereg_mr: MR lkey 0x1, wr_id 0x7: a "));
        assert!(text.ends_with("\n    in ibv_dereg_mr at prog+0x10\n"), "{text}");
    }

    #[test]
    fn json_is_one_line_and_escaped() {
        let json = finding().json(9, &|_| String::new());
        assert!(
            json.starts_with("{\"finding\":\"C007\",\"pid\":9,\"rule\":\"mr-in-use\","),
            "{json}"
        );
        assert!(json.contains("\"found\":\"a \\\"quote\\\",\\n\\\\ and \\u0001\""), "{json}");
        assert!(json.contains(",\"wr_id\":7,") && !json.contains('\n'), "{json}");
    }
}
