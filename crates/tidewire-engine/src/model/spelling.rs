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
    /// An option, such as `allow_host`, as it is written in this way.
    #[must_use]
    pub fn of(self, option: &str) -> String {
        match self {
            Self::Flag => format!("--{}", option.replace('_', "-")),
            Self::Keyword => option.to_owned(),
            Self::CamelCase => camel_case(option),
        }
    }

    /// The advice to add a value to a list option.
    pub(crate) fn advice(self, option: &str, value: &str) -> String {
        let name = self.of(option);
        match self {
            Self::Flag => format!("allow it with {name} {value}"),
            Self::Keyword | Self::CamelCase => format!("add it to the option {name}"),
        }
    }
}

fn camel_case(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut is_start = false;
    for letter in name.chars() {
        match letter {
            '_' => is_start = true,
            _ if is_start => {
                camel.push(letter.to_ascii_uppercase());
                is_start = false;
            }
            _ => camel.push(letter),
        }
    }
    camel
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
