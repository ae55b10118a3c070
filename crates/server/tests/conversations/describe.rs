//! Many conversations from few lines: `{a,b}` stands for either, and a name for each of the list `name = c,d`. A
//! line may end in `~mark`: what of it Terrace answers otherwise, it does for the reason of that name.

use std::collections::{HashMap, HashSet};

/// A conversation, as written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    pub sent: String,
    pub mark: Option<String>,
}

/// The conversations of a description, each once.
pub fn conversations(description: &str) -> Vec<Conversation> {
    let (mut lists, mut seen, mut all) = (HashMap::new(), HashSet::new(), Vec::new());
    for line in description.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if let Some((name, list)) = line.split_once(" = ").filter(|(name, _)| is_name(name)) {
            lists.insert(name, list.split(',').collect::<Vec<_>>());
            continue;
        }
        let (pattern, mark) = match line.rsplit_once(" ~") {
            Some((pattern, mark)) => (pattern, Some(mark.to_string())),
            None => (line, None),
        };
        for sent in expand(pattern, &lists) {
            if seen.insert(sent.clone()) {
                all.push(Conversation { sent, mark: mark.clone() });
            }
        }
    }
    all
}

fn is_name(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn expand(pattern: &str, lists: &HashMap<&str, Vec<&str>>) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else { return vec![pattern.to_string()] };
    let (choices, behind) = rest.split_once('}').expect("a brace that ends");
    let choices = choices.split(',').flat_map(|choice| match lists.get(choice) {
        Some(list) => list.clone(),
        None => vec![choice],
    });
    let choices: Vec<_> = choices.collect();
    assert!(choices.len() > 1, "no choice in {pattern}");
    let ends = expand(behind, lists);
    let joined = |choice: &&str| ends.iter().map(|end| format!("{before}{choice}{end}")).collect();
    choices.iter().flat_map(|choice| -> Vec<String> { joined(choice) }).collect()
}

#[test]
fn patterns_stand_for_each_of_their_choices() {
    let all = conversations("# a comment\nlist = x,y\nget {list,z} {1,}| ~why\nget x 1|\n");
    let sent: Vec<_> = all.iter().map(|conversation| &*conversation.sent).collect();
    assert_eq!(sent, ["get x 1|", "get x |", "get y 1|", "get y |", "get z 1|", "get z |"]);
    assert!(all.iter().all(|conversation| conversation.mark.as_deref() == Some("why")));
}
