//! The table: conversations with the answers of memcached, and those of Terrace where they are others.

use super::describe::Conversation;
use std::fmt::Write as _;

/// A conversation and its answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub sent: String,
    pub memcached: String,
    /// Why Terrace answers otherwise, and what.
    pub otherwise: Option<(String, String)>,
}

impl Row {
    pub fn new(conversation: &Conversation, memcached: String, terrace: &str) -> Self {
        let mark = conversation.mark.clone().unwrap_or_else(|| "?".to_string());
        let otherwise = (memcached != terrace).then(|| (mark, terrace.to_string()));
        Self { sent: conversation.sent.clone(), memcached, otherwise }
    }

    /// What Terrace is to answer.
    pub fn terrace(&self) -> &str {
        self.otherwise.as_ref().map_or(&self.memcached, |(_, terrace)| terrace)
    }
}

/// Reads a table.
pub fn read(text: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for line in text.lines() {
        if let Some(answer) = line.strip_prefix("> ") {
            rows.last_mut().expect("a conversation").memcached = answer.to_string();
        } else if let Some(otherwise) = line.strip_prefix("~ ") {
            let (mark, answer) = otherwise.split_once(' ').expect("a mark and an answer");
            let otherwise = Some((mark.to_string(), answer.to_string()));
            rows.last_mut().expect("a conversation").otherwise = otherwise;
        } else {
            let (sent, memcached) = (line.to_string(), String::new());
            rows.push(Row { sent, memcached, otherwise: None });
        }
    }
    rows
}

/// Writes a table.
pub fn write(rows: &[Row]) -> String {
    let mut out = String::new();
    for Row { sent, memcached, otherwise } in rows {
        let _ = writeln!(out, "{sent}\n> {memcached}");
        if let Some((mark, terrace)) = otherwise {
            let _ = writeln!(out, "~ {mark} {terrace}");
        }
    }
    out
}
