//! Finds blocks between tags on lines of their own, such as `<proposed_plan>`.
//!
//! ```text
//! text
//!   <proposed_plan>
//! inside
//! </proposed_plan>
//! ```
//!
//! A tag may be surrounded only by blanks. Its line is markup, including the newline. Inside a block only its
//! own close tag counts, outside blocks only open tags do. The end of the text ends a line and a block. The
//! beginning of a line is held back as long as it may become a tag; that is tracked as a state, so that no line
//! is read twice.

use std::ops::Range;

use crate::dialect::{Engine, HELD_BYTES_MAX};
use crate::event::{Event, Sink};

/// The tags of one kind of block, in ASCII.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags {
    /// The tag that begins a block, such as `<proposed_plan>`.
    pub open: &'static str,
    /// The tag that ends a block, such as `</proposed_plan>`.
    pub close: &'static str,
}

/// A piece of a text with blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text outside blocks; never empty.
    Text(&'a str),
    /// A block begins; its kind is the index of its tags in the table.
    Open(usize),
    /// Text inside a block; never empty.
    Inside(usize, &'a str),
    /// A block ends.
    Close {
        /// The kind of the block.
        kind: usize,
        /// Whether the end of the text ended it.
        implicit: bool,
    },
}

/// Finds the blocks of a text.
#[derive(Clone, Debug)]
pub struct Blocks {
    table: &'static [Tags],
    open: Option<usize>,
    line: Line,
    /// Length of the line while it may be a tag.
    line_bytes: usize,
    /// The part of the line from earlier pushes.
    held: String,
    held_start: u64,
}

/// The state of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Blank,
    /// Blanks and a prefix of a tag of this kind, of this length.
    Tag(usize, usize),
    /// Blanks and a whole tag, possibly followed by blanks.
    Whole(usize),
    /// Not a tag.
    Free,
}

impl Blocks {
    /// Creates a finder for the blocks of a table.
    pub fn new(table: &'static [Tags]) -> Self {
        let line = Line::Blank;
        Self { table, open: None, line, line_bytes: 0, held: String::new(), held_start: 0 }
    }

    /// Reads the next text, which is at `at`, and emits what it completes.
    pub fn push(&mut self, text: &str, at: u64, mut give: impl FnMut(Piece<'_>, Range<u64>)) {
        // Where the bytes begin that are not emitted yet, and where the line does.
        let (mut from, mut line, mut here) = (0, 0, 0);
        while let Some(letter) = text[here..].chars().next() {
            if self.line == Line::Free {
                let newline = memchr::memchr(b'\n', &text.as_bytes()[here..]);
                let Some(newline) = newline else { break };
                here += newline + 1;
                line = here;
                self.begin_line();
                continue;
            }
            let end = here + letter.len_utf8();
            match (self.line, letter) {
                (Line::Whole(kind), '\n') => {
                    self.piece(&text[from..line], at + from as u64, &mut give);
                    let start =
                        if self.held.is_empty() { at + line as u64 } else { self.held_start };
                    self.held.clear();
                    self.tag(kind, start..at + end as u64, &mut give);
                    from = end;
                    line = end;
                    self.begin_line();
                }
                (_, '\n') => {
                    self.release(&mut give);
                    line = end;
                    self.begin_line();
                }
                _ => {
                    self.line_bytes += letter.len_utf8();
                    self.line = self.next(letter);
                    if self.line == Line::Free {
                        self.release(&mut give);
                    }
                }
            }
            here = end;
        }
        let free = if self.line == Line::Free { text.len() } else { line };
        self.piece(&text[from..free], at + from as u64, &mut give);
        if free < text.len() {
            if self.held.is_empty() {
                self.held_start = at + free as u64;
            }
            self.held.push_str(&text[free..]);
        }
    }

    /// Ends the text, which is `at` bytes long.
    pub fn finish(&mut self, at: u64, mut give: impl FnMut(Piece<'_>, Range<u64>)) {
        if let Line::Whole(kind) = self.line {
            self.held.clear();
            self.tag(kind, self.held_start..at, &mut give);
        } else {
            self.release(&mut give);
        }
        self.begin_line();
        if let Some(kind) = self.open.take() {
            give(Piece::Close { kind, implicit: true }, at..at);
        }
    }

    fn begin_line(&mut self) {
        self.line = Line::Blank;
        self.line_bytes = 0;
    }

    /// Advances the state of a line that may be a tag by one character.
    fn next(&self, letter: char) -> Line {
        if self.line_bytes > HELD_BYTES_MAX {
            return Line::Free;
        }
        let (kind, length) = match self.line {
            Line::Blank | Line::Whole(_) if letter.is_whitespace() => return self.line,
            Line::Blank => (None, 0),
            Line::Tag(kind, length) => (Some(kind), length),
            Line::Whole(_) | Line::Free => return Line::Free,
        };
        let had = kind.map_or("", |kind| &self.live(kind)[..length]);
        let kinds = match self.open {
            Some(kind) => kind..kind + 1,
            None => 0..self.table.len(),
        };
        for kind in kinds {
            if let Some(rest) = self.live(kind).strip_prefix(had)
                && rest.starts_with(letter)
            {
                let is_whole = rest.len() == letter.len_utf8();
                let length = length + letter.len_utf8();
                return if is_whole { Line::Whole(kind) } else { Line::Tag(kind, length) };
            }
        }
        Line::Free
    }

    /// Returns the tag of a kind that is active now.
    fn live(&self, kind: usize) -> &'static str {
        let tags = &self.table[kind];
        if self.open.is_some() { tags.close } else { tags.open }
    }

    fn tag(
        &mut self,
        kind: usize,
        range: Range<u64>,
        give: &mut impl FnMut(Piece<'_>, Range<u64>),
    ) {
        if self.open.take().is_some() {
            give(Piece::Close { kind, implicit: false }, range);
        } else {
            self.open = Some(kind);
            give(Piece::Open(kind), range);
        }
    }

    /// Emits the held beginning of a line that is not a tag.
    fn release(&mut self, give: &mut impl FnMut(Piece<'_>, Range<u64>)) {
        self.piece(&self.held, self.held_start, give);
        self.held.clear();
    }

    fn piece(&self, text: &str, at: u64, give: &mut impl FnMut(Piece<'_>, Range<u64>)) {
        if !text.is_empty() {
            let piece = self.open.map_or(Piece::Text(text), |kind| Piece::Inside(kind, text));
            give(piece, at..at + text.len() as u64);
        }
    }
}

/// Finds the plans of a text.
#[derive(Clone, Debug)]
pub struct Plans {
    blocks: Blocks,
}

impl Default for Plans {
    fn default() -> Self {
        Self { blocks: Blocks::new(PLAN) }
    }
}

impl Plans {
    /// Reads the next text, which is at `at`, and emits what it completes.
    pub fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        self.blocks.push(text, at, |piece, range| sink.event(event(piece), range));
    }

    /// Ends the text, which is `at` bytes long.
    pub fn finish(&mut self, at: u64, sink: &mut dyn Sink) {
        self.blocks.finish(at, |piece, range| sink.event(event(piece), range));
    }
}

impl Engine for Plans {
    fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        Plans::push(self, text, at, sink);
    }

    fn finish(&mut self, at: u64, sink: &mut dyn Sink) {
        Plans::finish(self, at, sink);
    }
}

fn event(piece: Piece<'_>) -> Event<'_> {
    match piece {
        Piece::Text(text) => Event::Text(text),
        Piece::Open(_) => Event::PlanStart,
        Piece::Inside(_, text) => Event::Plan(text),
        Piece::Close { implicit, .. } => Event::PlanEnd { implicit },
    }
}

/// The tags of plans.
pub const PLAN: &[Tags] = &[Tags { open: "<proposed_plan>", close: "</proposed_plan>" }];

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::*;

    use super::{Blocks, Piece, Plans, Tags};
    use crate::dialect::{HELD_BYTES_MAX, trial};
    use crate::event::Event;

    #[track_caller]
    fn check(input: &str, want: &[&str]) {
        trial::row(|| Box::new(Plans::default()), input, want);
    }

    #[test]
    fn vectors() {
        let file = include_str!("../../tests/vectors/plan.json");
        trial::vectors(file, |_| Box::new(Plans::default()));
    }

    #[test]
    fn tags_and_lines() {
        const OPEN: &str = "<proposed_plan>\n";
        const CLOSE: &str = "</proposed_plan>\n";
        let whole = |inside: &str| format!("{OPEN}{inside}{CLOSE}");
        let (start, end) = ("plan_start", "plan_end false");
        check("", &[]);
        check(&whole(""), &[start, end]);
        check(&whole("\n"), &[start, "plan \"\\n\"", end]);
        check(&whole(" \t\n\u{3000}\n"), &[start, "plan \" \\t\\n\u{3000}\\n\"", end]);
        check(&whole(OPEN), &[start, "plan \"<proposed_plan>\\n\"", end]);
        check(&whole("é <b>\n"), &[start, "plan \"é <b>\\n\"", end]);
        check(&whole("a </proposed_plan>\n"), &[start, "plan \"a </proposed_plan>\\n\"", end]);
        check(CLOSE, &["text \"</proposed_plan>\\n\""]);
        check(
            &format!("{}{CLOSE}", whole("a\n")),
            &[start, "plan \"a\\n\"", end, "text \"</proposed_plan>\\n\""],
        );
        check(&whole("a\n").replace('\n', "\r\n"), &[start, "plan \"a\\r\\n\"", end]);
        check(
            &whole("a\n").to_uppercase(),
            &["text \"<PROPOSED_PLAN>\\nA\\n</PROPOSED_PLAN>\\n\""],
        );
        check(
            &format!("\n\n{}\n\n", whole("a\n")),
            &["text \"\\n\\n\"", start, "plan \"a\\n\"", end, "text \"\\n\\n\""],
        );
        check("\u{a0}<proposed_plan>\u{2003}\na", &[start, "plan \"a\"", "plan_end true"]);
        check("<proposed_plan>", &[start, "plan_end true"]);
        check("<proposed_plan>  ", &[start, "plan_end true"]);
        check("<proposed_plan>\n", &[start, "plan_end true"]);
        check("<proposed_plan>\na\n  ", &[start, "plan \"a\\n  \"", "plan_end true"]);
        check("<proposed_plan>\na\n</propo", &[start, "plan \"a\\n</propo\"", "plan_end true"]);
        check("<proposed_plan>x</proposed_plan>", &["text \"<proposed_plan>x</proposed_plan>\""]);
        check("<proposed_plan><proposed_plan>\n", &["text \"<proposed_plan><proposed_plan>\\n\""]);
        check("  <propo", &["text \"  <propo\""]);
        check("   ", &["text \"   \""]);
        check("a\n   \n<<proposed_plan>\n", &["text \"a\\n   \\n<<proposed_plan>\\n\""]);
    }

    #[test]
    fn blanks_are_held_only_so_long() {
        let blanks = " ".repeat(HELD_BYTES_MAX - "<proposed_plan>".len());
        check_fast(
            &format!("{blanks}<proposed_plan>\na"),
            &["plan_start", "plan \"a\"", "plan_end true"],
        );
        let line = format!("{blanks} <proposed_plan>\na");
        check_fast(&line, &[&trial::text("text", &line)]);
        let line = format!("<proposed_plan> {blanks}\na");
        check_fast(&line, &[&trial::text("text", &line)]);
    }

    /// Like `check`, for long inputs.
    #[track_caller]
    fn check_fast(input: &str, want: &[&str]) {
        for size in [1, 1000, input.len()] {
            let mut events = trial::run(&mut Plans::default(), input.as_bytes(), || size);
            for event in &mut events {
                event.as_object_mut().unwrap().remove("range");
            }
            assert!(trial::short(&events) == want, "{} bytes by {size}", input.len());
        }
    }

    #[test]
    fn text_that_cannot_be_a_tag_is_emitted_at_once() {
        let mut plans = Plans::default();
        let mut given = String::new();
        for (piece, want) in [
            (" ", ""),
            ("x", " x"),
            (" ", " "),
            ("\n<", "\n"),
            ("/", "</"),
            ("a", "a"),
            ("\n<proposed_plan>", "\n"),
            (" ", ""),
            ("!", "<proposed_plan> !"),
        ] {
            given.clear();
            plans.push(piece, 0, &mut |event: Event<'_>, _: Range<u64>| match event {
                Event::Text(text) => given.push_str(text),
                other => panic!("{other:?}"),
            });
            assert_eq!(given, want, "after {piece:?}");
        }
    }

    const KINDS: &[Tags] = &[
        Tags { open: "<a>", close: "</a>" },
        Tags { open: "<ab>", close: "</ab>" },
        Tags { open: "[a]", close: "[/a]" },
    ];

    /// Formats pieces, and checks that they add up to the input.
    fn read(text: &str, mut cut: impl FnMut() -> usize) -> String {
        let (mut blocks, mut read, mut end) = (Blocks::new(KINDS), String::new(), 0);
        let mut take = |piece: Piece<'_>, range: Range<u64>| {
            assert_eq!(range.start, end, "no byte between pieces");
            end = range.end;
            let source = &text[range.start as usize..range.end as usize];
            match piece {
                Piece::Text(part) => {
                    assert_eq!(part, source);
                    read.push_str(part);
                }
                Piece::Inside(kind, part) => {
                    assert_eq!(part, source);
                    part.chars().for_each(|letter| read.push_str(&format!("{kind}{letter}")));
                }
                Piece::Open(kind) => {
                    assert_eq!(source.trim(), KINDS[kind].open);
                    read.push_str(&format!("({kind}"));
                }
                Piece::Close { kind, implicit } => {
                    assert_eq!(source.trim(), if implicit { "" } else { KINDS[kind].close });
                    read.push_str(&format!("{kind})"));
                }
            }
        };
        let mut from = 0;
        while from < text.len() {
            let mut to = text.len().min(from.saturating_add(cut().max(1)));
            while !text.is_char_boundary(to) {
                to += 1;
            }
            blocks.push(&text[from..to], from as u64, &mut take);
            from = to;
        }
        blocks.finish(text.len() as u64, &mut take);
        assert_eq!(end as usize, text.len());
        read
    }

    #[test]
    fn several_kinds() {
        assert_eq!(read("<a>\nx\n<ab>\n</ab>\n</a>\n<ab>\n</ab>", || 1), {
            let inside: String = "x\n<ab>\n</ab>\n".chars().map(|c| format!("0{c}")).collect();
            format!("(0{inside}0)(11)")
        });
        assert_eq!(read("[a]\n[/a]\n[/a]\n", || 9), "(22)[/a]\n");
    }

    proptest! {
        /// The oracle: lines, each trimmed and compared with the tags.
        #[test]
        fn blocks_agree_with_a_line_by_line_parser(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "<a>", "</a>", "<ab>", "</ab>", "[a]", "[/a]", "\n", "\n", "\n", " ", "\t", "\r", "x",
                    "é", "<", "</a", "\u{a0}",
                ]),
                0..40,
            ),
            seed in 1u64..1000,
        ) {
            let text = parts.concat();
            let (mut want, mut open) = (String::new(), None::<usize>);
            for line in text.split_inclusive('\n') {
                let tag = line.trim();
                match open {
                    Some(kind) if tag == KINDS[kind].close => {
                        want.push_str(&format!("{kind})"));
                        open = None;
                    }
                    Some(kind) => line.chars().for_each(|c| want.push_str(&format!("{kind}{c}"))),
                    None => match KINDS.iter().position(|tags| tags.open == tag) {
                        Some(kind) => {
                            want.push_str(&format!("({kind}"));
                            open = Some(kind);
                        }
                        None => want.push_str(line),
                    },
                }
            }
            if let Some(kind) = open {
                want.push_str(&format!("{kind})"));
            }
            let mut random = trial::Random(seed);
            prop_assert_eq!(read(&text, || random.below(9)), want.clone());
            prop_assert_eq!(read(&text, || usize::MAX), want);
        }
    }
}
