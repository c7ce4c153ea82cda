//! Words of the wire as the values that they stand for.

use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};

/// What `word` stands for in a type that is written as one of a few words, by `serde`; `None` for any other.
pub fn of_word<'a, T: Deserialize<'a>>(word: &'a str) -> Option<T> {
    T::deserialize(StrDeserializer::<Error>::new(word)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_as_it_is_written_and_no_other_one_is() {
        #[derive(Debug, PartialEq, Eq, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum May {
            Full,
            ReadOnly,
        }
        assert_eq!(of_word("full"), Some(May::Full));
        assert_eq!(of_word("read-only"), Some(May::ReadOnly));
        for other in ["", "Full", "ReadOnly", "full ", "0"] {
            assert_eq!(of_word::<May>(other), None, "{other:?}");
        }
    }
}
