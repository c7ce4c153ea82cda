//! What is written is read again, and nothing else.

use super::*;
use serde_json::json;

#[derive(Debug, Clone, PartialEq, Recorded)]
enum Kind {
    None,
    Named { name: Arc<str>, after: Option<Time> },
    Pair(i64, Vec<(u32, String)>),
}

#[derive(Debug, Clone, PartialEq, Recorded)]
struct Whole {
    kinds: BTreeMap<u32, Kind>,
    of: &'static str,
    json: Value,
    result: Result<f64, String>,
    #[recorded(skip)]
    cache: u32,
}

fn whole() -> Whole {
    let kinds = [
        Kind::None,
        Kind::Named { name: "ä".into(), after: Some(Time(1 << 50)) },
        Kind::Pair(-3, vec![(7, "x".into())]),
    ];
    Whole {
        kinds: (1..).zip(kinds).collect(),
        of: "words",
        json: json!({"a": [1, -2, 2.5, null, true, {"b": "c"}]}),
        result: Ok(f64::MIN_POSITIVE),
        cache: 9,
    }
}

#[test]
fn what_was_written_is_read_again_but_for_what_is_skipped() {
    let mut bytes = Vec::new();
    whole().write(&mut bytes);
    let mut reader = Reader::new(&bytes);
    assert_eq!(Whole::read(&mut reader), Whole { cache: 0, ..whole() });
    assert!(reader.finish());
}

#[test]
fn without_words_names_and_lengths_stay() {
    let told = ["backend-1", "src/ä b.rs", "0 9 * * 1", "Mend the tür"].map(String::from).to_vec();
    let mut bytes = Vec::new();
    told.write(&mut bytes);
    let read = Vec::<String>::read(&mut Reader::wordless(&bytes));
    assert_eq!(read, ["backend-1", "xxxxxx xxxx", "0 9 * * 1", "xxxx xxx xxxx"]);
    assert!(read.iter().zip(&told).all(|(one, other)| one.len() == other.len()));
}

#[test]
fn what_is_cut_off_or_wrong_is_said_to_be_broken_and_never_panics() {
    let mut bytes = Vec::new();
    whole().write(&mut bytes);
    for end in 0..bytes.len() {
        let mut reader = Reader::new(&bytes[..end]);
        Whole::read(&mut reader);
        assert!(!reader.finish(), "cut at {end}");
    }
    for at in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[at] = 0xff;
        Whole::read(&mut Reader::new(&wrong));
    }
}

#[test]
fn another_definition_has_another_shape() {
    #[derive(Recorded)]
    #[allow(dead_code, reason = "its shape is looked at")]
    struct Old {
        a: u32,
        b: Inner,
    }
    mod newer {
        #[derive(super::Recorded)]
        #[allow(dead_code, reason = "its shape is looked at")]
        pub struct Old {
            a: u32,
            b: super::Other,
        }
    }
    #[derive(Recorded)]
    #[allow(dead_code, reason = "its shape is looked at")]
    struct Inner(u8);
    assert_ne!(Old::SHAPE, newer::Old::SHAPE);
}

#[derive(Recorded)]
#[allow(dead_code, reason = "its shape is looked at")]
struct Other(u8, u8);
