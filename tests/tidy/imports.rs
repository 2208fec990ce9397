//! Imports: which room may use which, as the block in `ARCHITECTURE.md` says.

use super::code::{code_of, without_comments};
use super::tree::File;

/// The block: rooms from the ground up, each with the rooms that it may use.
pub struct Block {
    rows: Vec<(String, Vec<String>)>,
}

impl Block {
    /// Reads the first fenced block below the heading "Who may import whom".
    pub fn parse(text: &str) -> Result<Self, String> {
        let (_, below) = text.split_once("## Who may import whom").ok_or("no such heading")?;
        let block = below.split("```").nth(1).ok_or("no block below it")?;
        let mut rows: Vec<(String, Vec<String>)> = Vec::new();
        for line in block.lines().filter(|line| line.contains("->")) {
            let (room, uses) = line.split_once("->").ok_or("no arrow")?;
            let uses: Vec<String> = uses.split_whitespace().map(String::from).collect();
            for other in &uses {
                if !rows.iter().any(|(room, _)| room == other) {
                    return Err(format!("{}uses {other}, which stands in no row above", room));
                }
            }
            rows.push((room.trim().into(), uses));
        }
        if rows.is_empty() { Err("an empty block".into()) } else { Ok(Self { rows }) }
    }

    fn uses(&self, room: &str) -> Option<&[String]> {
        self.rows.iter().find(|(name, _)| name == room).map(|(_, uses)| &uses[..])
    }

    /// Rooms of the block that do not exist, and rooms that are not in the block.
    pub fn against_rooms(&self, rooms: &[String]) -> Vec<String> {
        let known = |room: &&String| self.uses(room).is_none();
        let strange = rooms.iter().filter(known).map(|room| format!("src/{room}: in no row"));
        let listed = self.rows.iter().map(|(room, _)| room);
        let gone = listed.filter(|room| !["lib", "tools"].contains(&&room[..]));
        let gone = gone.filter(|room| !rooms.contains(room));
        strange.chain(gone.map(|room| format!("{room}: a row without a room"))).collect()
    }

    /// What one file of the library names that it may not.
    pub fn complaints(&self, file: &File) -> Vec<String> {
        let path = &file.path;
        let code = without_comments(&file.text);
        let Some(room) = room_of(path) else { return self.lib(path, &code) };
        let Some(uses) = self.uses(&room) else { return vec![format!("{path}: in no room")] };
        let named = names_after(&code, "crate");
        let forbidden = named.into_iter().filter(|name| *name != room && !uses.contains(name));
        let forbidden = forbidden.map(|name| format!("{path}: {room} may not use crate::{name}"));
        forbidden.chain(ways_around(path, &file.text)).collect()
    }

    fn lib(&self, path: &str, code: &str) -> Vec<String> {
        let uses = self.uses("lib").unwrap_or_default();
        let rooms = code.split("mod ").skip(1).filter_map(|rest| rest.split(';').next());
        let strange = rooms.filter(|room| !uses.contains(&room.trim().to_string()));
        strange.map(|room| format!("{path}: lib has no room {room}")).collect()
    }

    /// What one file of the tools names besides the library's rooms.
    pub fn tools(&self, file: &File) -> Vec<String> {
        let path = &file.path;
        let code = without_comments(&file.text);
        let uses = self.uses("lib").unwrap_or_default();
        let named = names_after(&code, "blockyard").into_iter();
        let private = named.filter(|name| !uses.contains(name));
        let private = private.map(|name| format!("{path}: blockyard::{name} is no public room"));
        let stolen =
            code.contains("../src/").then(|| format!("{path}: takes a file of the library"));
        private.chain(stolen).collect()
    }
}

/// The library knows nothing of its tools.
pub fn names_tools(file: &File) -> Vec<String> {
    let found = file.lines().filter(|(_, line)| code_of(line).contains("blockyard_tools"));
    found.map(|(n, _)| format!("{}:{n}: names the tools", file.path)).collect()
}

/// The room that a file of the library belongs to; none for `lib.rs`, nor outside.
pub fn room_of(path: &str) -> Option<String> {
    let inside = path.strip_prefix("src/")?;
    let room = inside.split('/').next()?.trim_end_matches(".rs");
    (room != "lib").then(|| room.into())
}

/// The names that follow `root::`, also in a group such as `root::{a::b, c}`.
fn names_after(code: &str, root: &str) -> Vec<String> {
    let mut names = Vec::new();
    let start = format!("{root}::");
    for (place, _) in code.match_indices(&start) {
        let before = code[..place].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[place + start.len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(members(group)),
            None => names.push(word(rest)),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The first word of each member of a group, up to the brace that closes it.
fn members(group: &str) -> Vec<String> {
    let (mut depth, mut names, mut start) = (0u32, Vec::new(), 0);
    for (place, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                names.push(word(group[start..place].trim_start()));
                start = place + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    names
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// `super::` more often than the file is deep would leave the room unseen.
fn ways_around(path: &str, text: &str) -> Vec<String> {
    let parts = path.split('/').count();
    let deep = if path.ends_with("/mod.rs") { parts - 2 } else { parts - 1 };
    let mut nested = 0;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        nested += usize::from(line.starts_with("mod ") && line.ends_with('{'));
        nested -= usize::from(line == "}" && nested > 0);
        let code = code_of(line);
        let chain = (1..9).rev().find(|&n| code.contains(&"super::".repeat(n))).unwrap_or(0);
        if chain >= deep + nested {
            found.push(format!("{path}:{number}: leaves its room by super::"));
        }
    }
    found
}
