//! Spelling of options in texts for whoever runs the server.

/// How whoever runs the server gives it options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OptionSpelling {
    /// As flags of a command line, such as `--allow-host`.
    Flag,
    /// As keyword arguments, such as `allow_host`.
    #[default]
    Keyword,
    /// As properties of an object in JavaScript, such as `allowHost`.
    CamelCase,
}

impl OptionSpelling {
    /// The advice to add a value to a list option.
    pub(crate) fn advice(self, option: &str, value: &str) -> String {
        match self {
            Self::Flag => format!("allow it with --{} {value}", option.replace('_', "-")),
            Self::Keyword => format!("add it to the option {option}"),
            Self::CamelCase => {
                let mut words = option.split('_');
                let first = words.next().unwrap_or_default().to_owned();
                let name = words.fold(first, |mut name, word| {
                    let mut letters = word.chars();
                    name.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
                    name.push_str(letters.as_str());
                    name
                });
                format!("add it to the option {name}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_its_own_words() {
        let advice = |spelling: OptionSpelling| spelling.advice("allow_host", "a.example");
        assert_eq!(
            advice(OptionSpelling::Flag),
            "allow it with --allow-host a.example"
        );
        assert_eq!(
            advice(OptionSpelling::Keyword),
            "add it to the option allow_host"
        );
        assert_eq!(
            advice(OptionSpelling::CamelCase),
            "add it to the option allowHost"
        );
    }
}
