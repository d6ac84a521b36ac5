//! What the model reads about a command: a few facts, then its output within a token budget.

use std::time::Duration;

use stdx::HeadTail;

/// The state of a command when the model hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandState {
    Exited(i32),
    /// It continues as a session.
    Running(u64),
}

/// Renders the result of `exec_command` or `write_stdin`.
pub(crate) fn render(
    chunk: u32,
    wall: Duration,
    standing: CommandState,
    output: &HeadTail,
    tokens_max: u64,
) -> String {
    let standing = match standing {
        CommandState::Exited(code) => format!("Process exited with code {code}"),
        CommandState::Running(session) => format!("Process running with session ID {session}"),
    };
    format!(
        "Chunk ID: {:06x}\nWall time: {:.4} seconds\n{standing}\nOriginal token count: {}\nOutput:\n{}",
        chunk & 0xff_ffff,
        wall.as_secs_f64(),
        tokens(output.total()),
        within_budget(output, tokens_max),
    )
}

/// Returns the output; if it exceeds the budget, its middle is replaced by the number of omitted tokens.
pub(crate) fn within_budget(output: &HeadTail, tokens_max: u64) -> String {
    let text = output.to_text();
    let budget = usize::try_from(tokens_max.saturating_mul(BYTES_PER_TOKEN)).unwrap_or(usize::MAX);
    if text.len() <= budget && output.omitted() == 0 {
        return text;
    }
    // What was omitted is counted relative to what the model could have seen.
    let seen = text.len() as u64;
    let total = tokens(if output.omitted() == 0 { seen } else { output.total() });
    let lost = match output.omitted() {
        0 => format!("Total output lines: {}", text.lines().count()),
        bytes => format!("... {bytes} bytes omitted ..."),
    };
    let half = budget.min(text.len()) / 2;
    let head = text.floor_char_boundary(half);
    let tail = text.ceil_char_boundary(text.len() - half);
    let cut = tokens(seen.saturating_sub(budget as u64));
    format!(
        "Warning: truncated output (original token count: {total})\n{lost}\n\n{}…{cut} tokens truncated…{}",
        &text[..head],
        &text[tail..]
    )
}

/// A rule of thumb: four bytes make a token.
const BYTES_PER_TOKEN: u64 = 4;

fn tokens(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use stdx::HeadTail;

    use super::{CommandState, render, within_budget};

    fn output(text: &str) -> HeadTail {
        let mut output = HeadTail::new(64, 64);
        output.push(text.as_bytes());
        output
    }

    #[test]
    fn facts_come_first() {
        let wall = Duration::from_micros(10_749);
        assert_eq!(
            render(0x1e109d, wall, CommandState::Exited(0), &output("hi\n"), 10),
            "Chunk ID: 1e109d\nWall time: 0.0107 seconds\nProcess exited with code 0\n\
             Original token count: 1\nOutput:\nhi\n"
        );
        let text = render(7, wall, CommandState::Running(83_339), &output(""), 10);
        assert!(text.contains("Chunk ID: 000007\n"), "{text}");
        assert!(text.contains("Process running with session ID 83339\n"), "{text}");
    }

    #[track_caller]
    fn check(text: &str, tokens_max: u64, want: &str) {
        assert_eq!(within_budget(&output(text), tokens_max), want);
    }

    #[test]
    fn budgets() {
        check("12345678", 2, "12345678");
        let head = "Warning: truncated output (original token count: ";
        check(
            "123456789",
            2,
            &format!("{head}3)\nTotal output lines: 1\n\n1234…1 tokens truncated…6789"),
        );
        check("ééééé", 1, &format!("{head}3)\nTotal output lines: 1\n\né…2 tokens truncated…é"));
        check("abc", 0, &format!("{head}1)\nTotal output lines: 1\n\n…1 tokens truncated…"));
        let long = within_budget(&output(&"x".repeat(1000)), 4);
        assert!(long.contains("\n... 872 bytes omitted ...\n\nxxxxxxxx…35 tokens"), "{long}");
    }

    proptest! {
        #[test]
        fn any_text_fits_its_budget(text: String, tokens_max in 0u64..64) {
            let got = within_budget(&output(&text), tokens_max);
            prop_assert!(got.len() as u64 <= tokens_max * 4 + 200 || got == text);
        }
    }
}
