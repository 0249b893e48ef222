//! Paragraphs of `Field: value` lines, as in package lists and in deb822 sources.

/// One paragraph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Paragraph {
    fields: Vec<(String, String)>,
}

impl Paragraph {
    /// A field's value; names differ by more than case. Continued lines keep their line breaks.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
        field.map(|(_, value)| value.as_str())
    }

    /// The words of a field's value.
    pub(crate) fn words(&self, name: &str) -> impl Iterator<Item = &str> {
        self.get(name).unwrap_or_default().split_ascii_whitespace()
    }
}

/// Takes a text apart into paragraphs.
pub(crate) fn parse(text: &str) -> Vec<Paragraph> {
    let mut paragraphs = vec![Paragraph::default()];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields = &mut paragraphs.last_mut().expect("starts with one, and only grows").fields;
        if line.trim().is_empty() {
            if !fields.is_empty() {
                paragraphs.push(Paragraph::default());
            }
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    paragraphs.retain(|paragraph| !paragraph.fields.is_empty());
    paragraphs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paragraphs_comments_and_continued_lines() {
        let parsed = parse("\n# first\nTypes: deb\nURIs: a\n b\n\n\n\nTypes:deb-src\n# x\nSuites: c d\n");
        assert_eq!(parsed.len(), 2);
        assert_eq!(parsed[0].words("uris").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(parsed[1].get("Types"), Some("deb-src"));
        assert_eq!(parsed[1].words("Suites").count(), 2);
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "(.*\n){0,20}") {
            for paragraph in parse(&text) {
                prop_assert!(!paragraph.fields.is_empty());
            }
        }
    }
}
