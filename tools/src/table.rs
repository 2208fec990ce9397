//! Table: rows of text in columns, numbers to the right.

/// Lines of the rows, columns two spaces apart; the first and the last column to the left, numbers between
/// them to the right.
#[must_use]
pub fn lines(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    rows.iter()
        .map(|row| {
            let cells = row.iter().enumerate().map(|(column, cell)| {
                let width = widths[column];
                if column == 0 || column + 1 == columns {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
        })
        .collect()
}

/// 1234567 as `1,234,567`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn counts_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_053_895, "1,053,895")] {
            assert_eq!(super::count(number), text);
        }
    }
}
