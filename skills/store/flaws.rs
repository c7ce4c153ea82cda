//! What cannot be in a sound database, asked of the rows themselves: counters against what they count,
//! records against what they refer to. The questions are the same for every store.

/// Rows told of one flaw; where there are more, the first ones are enough to act on.
pub const SHOWN: usize = 20;

/// A question whose every answer is the id of something damaged.
pub struct Question {
    /// What it means that there is an answer.
    pub meaning: &'static str,
    /// One column of text.
    pub sql: &'static str,
}

/// All questions.
pub const QUESTIONS: [Question; 8] = [
    Question {
        meaning: "skills whose author record is missing",
        sql: "SELECT id FROM skills WHERE author_id NOT IN (SELECT id FROM authors)",
    },
    Question {
        meaning: "skills whose content is missing",
        sql: "SELECT id FROM skills WHERE digest NOT IN (SELECT digest FROM blobs)",
    },
    Question {
        meaning: "skills whose history is missing",
        sql: "SELECT id FROM skills WHERE id NOT IN (SELECT skill_id FROM skill_versions)",
    },
    Question {
        meaning: "skills whose history has gaps",
        sql: "SELECT skill_id FROM skill_versions GROUP BY skill_id \
              HAVING count(*) <> max(seq) OR min(seq) <> 1",
    },
    Question {
        meaning: "skills whose history does not end in their content",
        sql: "SELECT s.id FROM skills s JOIN skill_versions v ON v.skill_id = s.id WHERE v.digest <> s.digest \
              AND v.seq = (SELECT max(w.seq) FROM skill_versions w WHERE w.skill_id = s.id)",
    },
    Question {
        meaning: "skills whose history names contents that are missing",
        sql: "SELECT DISTINCT skill_id FROM skill_versions WHERE digest NOT IN (SELECT digest FROM blobs)",
    },
    Question {
        meaning: "skills whose rating counters are not the sum of their ratings",
        sql: "SELECT s.id FROM skills s LEFT JOIN (SELECT skill_id, sum(rating) AS total, count(*) AS raters \
              FROM ratings GROUP BY skill_id) r ON r.skill_id = s.id \
              WHERE s.rating_sum <> coalesce(r.total, 0) OR s.rating_count <> coalesce(r.raters, 0)",
    },
    Question {
        meaning: "skills with fewer downloads than installs were counted",
        sql: "SELECT s.id FROM skills s JOIN (SELECT skill_id, sum(count) AS installs FROM install_daily \
              GROUP BY skill_id) d ON d.skill_id = s.id WHERE s.downloads < d.installs",
    },
];

/// The answers to a question as a sentence; none where there are no answers.
pub fn sentence(question: &Question, mut ids: Vec<String>) -> Option<String> {
    if ids.is_empty() {
        return None;
    }
    let more = ids.len().saturating_sub(SHOWN);
    ids.truncate(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("{}: {}{more}", question.meaning, ids.join(", ")))
}
