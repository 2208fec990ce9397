//! Invariants: the list in `docs/invariants.md` against the code: each number owned, cited and tested.

use super::tree::File;

/// One row of the list.
pub struct Row {
    number: String,
    /// The file that owns it.
    owner: String,
    /// Functions that would fail.
    tests: Vec<String>,
}

/// Rows whose first cell is a number in bold: number, words, owner, asserted, audited, tests.
pub fn list(text: &str) -> Vec<Row> {
    let rows = text.lines().filter(|line| line.starts_with("| **"));
    rows.filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let number = cells.get(1)?.trim_matches('*').to_string();
        let owner = quoted(cells.get(3)?).into_iter().next()?;
        Some(Row { number, owner, tests: quoted(cells.get(6)?) })
    })
    .collect()
}

fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(String::from).collect()
}

/// Everything that is wrong with the list or with the code.
pub fn complaints(list: &[Row], files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for row in list {
        let number = &row.number;
        let owner = files.iter().find(|file| file.path == row.owner);
        match owner.map(|file| cited(&file.text).contains(number)) {
            None => found.push(format!("{number}: its owner {} does not exist", row.owner)),
            Some(false) => found.push(format!("{number}: {} does not cite it", row.owner)),
            Some(true) => {}
        }
        if row.tests.is_empty() {
            found.push(format!("{number}: no test is named"));
        }
        for test in &row.tests {
            let defined = format!("fn {test}(");
            if !files.iter().any(|file| file.text.contains(&defined)) {
                found.push(format!("{number}: its test {test} does not exist"));
            }
        }
    }
    let sources = files.iter().filter(|file| file.path.starts_with("src/"));
    for (file, number) in
        sources.flat_map(|file| cited(&file.text).into_iter().map(move |n| (file, n)))
    {
        if !list.iter().any(|row| row.number == number) {
            found.push(format!("{}: cites {number}, which is not listed", file.path));
        }
    }
    found
}

/// Numbers in bold: `**` a capital letter, digits, `**`.
fn cited(text: &str) -> Vec<String> {
    let parts = text.split("**").skip(1);
    let numbers = parts.filter(|part| {
        let digits = part.strip_prefix(|c: char| c.is_ascii_uppercase());
        digits
            .is_some_and(|d| !d.is_empty() && d.len() <= 2 && d.bytes().all(|b| b.is_ascii_digit()))
    });
    numbers.map(String::from).collect()
}
