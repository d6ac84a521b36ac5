//! The turns of a thread, a few bytes each: a thread may have very many.

use std::fmt;

/// The turns of a thread, oldest first.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Turns {
    marks: Vec<Mark>,
    /// Number of forgotten turns before those.
    forgotten: usize,
    /// Ids and words of all turns, in order: one allocation instead of two for each.
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn<'a> {
    /// Its id; empty if the log does not name it.
    pub id: &'a str,
    /// The ordinal of its first line; lines of older files have none.
    pub ordinal: Option<u64>,
    /// The first words of the user's message.
    pub words: &'a str,
    pub end: TurnEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// It has not ended, or its process died and nothing came after.
    Open,
    /// With an answer.
    Completed,
    Failed,
    /// Interrupted by the user.
    Interrupted,
    /// Its process died.
    Lost,
    /// The log does not say.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// [`NO_ORDINAL`] if there is none.
    ordinal: u64,
    /// Where its id starts in the text.
    at: u32,
    id_bytes: u8,
    words_bytes: u8,
    /// Whether there was a message of the user.
    spoken: bool,
    end: TurnEnd,
}

impl Turns {
    /// Returns how many there are, including forgotten ones.
    pub fn len(&self) -> usize {
        self.forgotten + self.marks.len()
    }

    /// Returns how many were forgotten: the oldest, if there are more than [`TURNS_MAX`].
    pub fn forgotten(&self) -> usize {
        self.forgotten
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a turn by its index in the thread, from 0; none if it was forgotten.
    pub fn get(&self, index: usize) -> Option<Turn<'_>> {
        self.marks.get(index.checked_sub(self.forgotten)?).map(|mark| self.show(mark))
    }

    /// Returns the remembered turns in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Turn<'_>> + ExactSizeIterator {
        self.marks.iter().map(|mark| self.show(mark))
    }

    /// Returns their memory usage.
    pub fn memory_bytes(&self) -> usize {
        self.text.capacity() + self.marks.capacity() * size_of::<Mark>()
    }

    fn show(&self, mark: &Mark) -> Turn<'_> {
        let at = mark.at as usize;
        let words = at + usize::from(mark.id_bytes);
        Turn {
            id: &self.text[at..words],
            ordinal: (mark.ordinal != NO_ORDINAL).then_some(mark.ordinal),
            words: &self.text[words..words + usize::from(mark.words_bytes)],
            end: mark.end,
        }
    }

    /// Adds a turn. A turn that is still open can no longer end: its process must have died.
    pub(crate) fn begin(&mut self, id: &str, ordinal: Option<u64>, end: TurnEnd) {
        if let Some(last) = self.marks.last_mut().filter(|last| last.end == TurnEnd::Open) {
            last.end = TurnEnd::Lost;
        }
        if self.marks.len() >= TURNS_MAX {
            self.forget(TURNS_MAX / 2);
        }
        let id = bounded(id, ID_BYTES_MAX);
        let at = u32::try_from(self.text.len()).expect("bounded by the number of turns");
        self.text.push_str(id);
        self.marks.push(Mark {
            ordinal: ordinal.unwrap_or(NO_ORDINAL),
            at,
            id_bytes: id.len() as u8,
            words_bytes: 0,
            spoken: false,
            end,
        });
    }

    /// Records the user's first message in the last turn.
    pub(crate) fn said(&mut self, text: &str) {
        let Some(last) = self.marks.last_mut().filter(|last| last.words_bytes == 0) else { return };
        let line = text.trim_start().lines().next().unwrap_or_default();
        let words = bounded(line, WORDS_BYTES_MAX).trim_end();
        last.words_bytes = words.len() as u8;
        last.spoken |= !words.is_empty();
        self.text.push_str(words);
    }

    pub(crate) fn end(&mut self, end: TurnEnd) {
        if let Some(last) = self.marks.last_mut() {
            last.end = end;
        }
    }

    /// Removes the last `count` turns with a message of the user, and all after them.
    pub(crate) fn roll_back(&mut self, count: u64) {
        let mut left = count;
        while left > 0
            && let Some(mark) = self.marks.pop()
        {
            self.text.truncate(mark.at as usize);
            left -= u64::from(mark.spoken);
        }
        // It is not known which of the forgotten turns had a message of the user.
        self.forgotten = self.forgotten.saturating_sub(usize::try_from(left).unwrap_or(usize::MAX));
    }

    /// Serializes how many there are, and which had a message of the user: one bit each.
    pub(crate) fn saved(&self) -> Vec<u8> {
        let mut saved = Vec::with_capacity(16 + self.marks.len().div_ceil(8));
        saved.extend_from_slice(&(self.forgotten as u64).to_le_bytes());
        saved.extend_from_slice(&(self.marks.len() as u64).to_le_bytes());
        saved.extend(self.marks.chunks(8).map(|marks| {
            let bits = marks.iter().enumerate();
            bits.fold(0, |byte, (bit, mark)| byte | u8::from(mark.spoken) << bit)
        }));
        saved
    }

    /// Parses what [`Turns::saved`] wrote, and returns the rest of the bytes. Ids and words of the turns are
    /// lost.
    pub(crate) fn restored(saved: &[u8]) -> Option<(Self, &[u8])> {
        let (forgotten, rest) = saved.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
        let forgotten = usize::try_from(u64::from_le_bytes(*forgotten)).ok()?;
        let (bits, rest) = rest.split_at_checked(count.div_ceil(8))?;
        let mark = |index: usize| Mark {
            ordinal: NO_ORDINAL,
            at: 0,
            id_bytes: 0,
            words_bytes: 0,
            spoken: bits[index / 8] >> (index % 8) & 1 == 1,
            end: TurnEnd::Unknown,
        };
        let turns = Self {
            marks: (0..count.min(TURNS_MAX)).map(mark).collect(),
            forgotten,
            text: String::new(),
        };
        (count <= TURNS_MAX && forgotten.checked_add(count).is_some()).then_some((turns, rest))
    }

    /// Frees memory that is not needed.
    pub fn shrink(&mut self) {
        self.marks.shrink_to_fit();
        self.text.shrink_to_fit();
    }

    fn forget(&mut self, count: usize) {
        let cut = self.marks[count].at;
        self.marks.drain(..count);
        self.forgotten += count;
        self.text.drain(..cut as usize);
        self.marks.iter_mut().for_each(|mark| mark.at -= cut);
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

fn bounded(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Most turns to remember; beyond that, the oldest are forgotten.
pub const TURNS_MAX: usize = 65_536;
/// Most bytes of the user's message to remember per turn.
pub const WORDS_BYTES_MAX: usize = 40;
/// Most bytes of an id to remember: a UUID has 36.
const ID_BYTES_MAX: usize = 64;
const NO_ORDINAL: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::{TURNS_MAX, TurnEnd, Turns, WORDS_BYTES_MAX};

    #[test]
    fn ten_thousand_turns_are_small() {
        let mut turns = Turns::default();
        for number in 0..10_000 {
            turns.begin(
                &format!("01a1e273-775e-7183-879f-{number:012}"),
                Some(number),
                TurnEnd::Open,
            );
            turns.said(&"é".repeat(100));
            turns.end(TurnEnd::Completed);
        }
        turns.shrink();
        assert!(turns.memory_bytes() < 1_100_000, "{}", turns.memory_bytes());
        let last = turns.get(9_999).unwrap();
        assert_eq!((last.id, last.ordinal), ("01a1e273-775e-7183-879f-000000009999", Some(9_999)));
        assert_eq!(last.words, "é".repeat(WORDS_BYTES_MAX / 2));
    }

    #[test]
    fn the_newest_turns_are_kept_beyond_the_limit() {
        let mut turns = Turns::default();
        for number in 0..=TURNS_MAX as u64 {
            turns.begin(&number.to_string(), Some(number), TurnEnd::Unknown);
        }
        assert_eq!((turns.len(), turns.iter().len()), (TURNS_MAX + 1, TURNS_MAX / 2 + 1));
        assert_eq!(turns.forgotten(), TURNS_MAX / 2);
        // An index is that in the thread, whatever was forgotten.
        assert_eq!(turns.get(TURNS_MAX / 2 - 1), None);
        let first = turns.get(TURNS_MAX / 2).unwrap();
        assert_eq!((first.id, first.ordinal), ("32768", Some(32_768)));
        assert_eq!(turns.get(TURNS_MAX).unwrap().id, "65536");
        turns.said("words");
        turns.roll_back(1);
        assert_eq!((turns.len(), turns.forgotten()), (TURNS_MAX, TURNS_MAX / 2));
    }

    #[test]
    fn a_restored_replay_continues_counting() {
        let mut turns = Turns::default();
        for number in 0..19 {
            turns.begin(&number.to_string(), Some(number), TurnEnd::Open);
            turns.said(if number % 3 == 0 { "words" } else { "" });
        }
        let mut saved = turns.saved();
        saved.push(7);
        let (mut restored, rest) = Turns::restored(&saved).unwrap();
        assert_eq!((restored.len(), rest), (19, &[7][..]));
        for count in [1, 2, 1] {
            restored.roll_back(count);
            turns.roll_back(count);
            assert_eq!(restored.len(), turns.len());
        }
        assert!(Turns::restored(&saved[..17]).is_none());
        assert!(Turns::restored(&[0xff; 40]).is_none());
    }

    #[test]
    fn turns_without_words_do_not_count_when_rolled_back() {
        let mut turns = Turns::default();
        for (id, words) in [("a", "one"), ("b", ""), ("c", "\n two\nthree"), ("d", "")] {
            turns.begin(id, None, TurnEnd::Open);
            turns.said(words);
        }
        assert_eq!(turns.get(2).unwrap().words, "two");
        assert_eq!(turns.get(2).unwrap().end, TurnEnd::Lost);
        turns.roll_back(0);
        assert_eq!(turns.len(), 4);
        turns.roll_back(1);
        assert_eq!(turns.iter().map(|turn| turn.id).collect::<Vec<_>>(), ["a", "b"]);
        turns.roll_back(u64::MAX);
        assert!(turns.is_empty());
    }
}
