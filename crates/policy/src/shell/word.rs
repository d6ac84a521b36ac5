//! Words as bash reads them: without quotes, and with what is known before expansion.

use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The word itself, or the known part of its beginning.
    pub text: String,
    /// Why the word is not fully known; `None` if the text is complete.
    pub unknown: Option<Unknown>,
    /// Whether any of it was quoted or escaped.
    pub quoted: bool,
    /// The word as written.
    pub source: String,
}

/// Why a word is known only at run time, most harmless first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unknown {
    /// A tilde expands to a directory; still one word.
    Tilde,
    /// Something is expanded inside quotes; still one word.
    Quoted,
    /// A glob: any number of words, each the name of a file.
    Glob,
    /// Braces: several words.
    Brace,
    /// Something is expanded outside quotes: any number of any words.
    Expansion,
}

impl Word {
    /// Creates a word that is fully known.
    pub fn literal(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { source: text.clone(), text, unknown: None, quoted: true }
    }

    /// Creates a placeholder for unknown words, such as those that another program adds.
    pub fn any(source: impl Into<String>) -> Self {
        Self {
            text: String::new(),
            unknown: Some(Unknown::Expansion),
            quoted: false,
            source: source.into(),
        }
    }

    /// Returns the text of a word that is fully known.
    pub fn known(&self) -> Option<&str> {
        self.unknown.is_none().then_some(self.text.as_str())
    }

    /// Tells whether this may expand to no word, or to several.
    pub fn splits(&self) -> bool {
        self.unknown >= Some(Unknown::Glob)
    }

    /// Returns a glob that matches whatever the word may expand to, as long as that is one word.
    pub(crate) fn pattern(&self) -> String {
        match self.known() {
            Some(text) => text.to_owned(),
            None => with_holes(&self.source, '*'),
        }
    }

    /// Tells whether the word is one of these names, written without any quoting.
    pub(crate) fn is_bare(&self, names: &[&str]) -> bool {
        !self.quoted && self.known().is_some_and(|text| names.contains(&text))
    }
}

/// Reads the word at `range` of `script`; `holes` are its expansions and substitutions, in order. Returns
/// `None` if the word does not end where the range does, or contains something impossible.
pub(super) fn read(script: &str, range: Range<usize>, holes: &[Range<usize>]) -> Option<Word> {
    let mut reader = Reader {
        bytes: &script.as_bytes()[..range.end],
        script,
        at: range.start,
        holes,
        text: Vec::new(),
        unknown: None,
        quoted: false,
        brace: Brace::None,
    };
    reader.word()?;
    if reader.at != range.end || !reader.holes.is_empty() {
        return None;
    }
    // Escapes can produce bytes that are not UTF-8; what a program makes of them is unknown.
    let (text, unknown) = match String::from_utf8(reader.text) {
        Ok(text) if !text.contains('\0') => (text, reader.unknown),
        _ => (String::new(), reader.unknown.max(Some(Unknown::Quoted))),
    };
    Some(Word { text, unknown, quoted: reader.quoted, source: script[range].to_owned() })
}

/// Progress of the characters outside quotes towards a brace expansion.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Brace {
    None,
    Open,
    Expands,
}

struct Reader<'a> {
    bytes: &'a [u8],
    script: &'a str,
    at: usize,
    holes: &'a [Range<usize>],
    text: Vec<u8>,
    unknown: Option<Unknown>,
    quoted: bool,
    brace: Brace,
}

impl Reader<'_> {
    fn word(&mut self) -> Option<()> {
        let start = self.at;
        while let Some(&byte) = self.bytes.get(self.at) {
            if self.hole(Unknown::Expansion) {
                continue;
            }
            let before = self.at.checked_sub(1).filter(|at| *at >= start).map(|at| self.bytes[at]);
            match byte {
                b'\'' => self.single()?,
                b'"' => self.double()?,
                b'\\' => self.escape()?,
                b'$' => self.dollar()?,
                b' ' | b'\t' | b'\n' | b'\r' | b'\x0b' | b'\x0c' => return None,
                b'|' | b'&' | b';' | b'(' | b')' | b'<' | b'>' | b'`' => return None,
                b'#' if before.is_none() => return None,
                b'*' | b'?' | b'[' => self.special(byte, Unknown::Glob),
                b'~' if matches!(before, None | Some(b'=' | b':')) => {
                    self.special(byte, Unknown::Tilde);
                }
                // In zsh, `=name` expands to the path of a program.
                b'=' if before.is_none() && self.at + 1 < self.bytes.len() => {
                    self.special(byte, Unknown::Quoted);
                }
                b'{' => {
                    self.brace = self.brace_opens();
                    self.plain(byte);
                }
                b',' | b'.' if self.brace == Brace::Open => {
                    if byte == b',' || before == Some(b'.') {
                        self.brace = Brace::Expands;
                    }
                    self.plain(byte);
                }
                _ => self.plain(byte),
            }
        }
        if self.brace == Brace::Expands {
            let at = self.text.iter().position(|byte| *byte == b'{').unwrap_or(0);
            self.text.truncate(at);
            self.note(Unknown::Brace);
        }
        Some(())
    }

    fn brace_opens(&self) -> Brace {
        if self.brace == Brace::None { Brace::Open } else { self.brace }
    }

    /// Skips the expansion that begins here, if there is one.
    fn hole(&mut self, unknown: Unknown) -> bool {
        let Some((hole, rest)) = self.holes.split_first().filter(|(hole, _)| hole.start == self.at)
        else {
            return false;
        };
        let text = &self.script[hole.clone()];
        // All positional parameters, or array elements, are several words even inside quotes.
        let several = text.starts_with("$@") || (text.starts_with("${") && text.contains('@'));
        self.note(if several { Unknown::Expansion } else { unknown });
        self.at = hole.end;
        self.holes = rest;
        true
    }

    fn single(&mut self) -> Option<()> {
        self.quoted = true;
        let body = self.at + 1;
        let length = self.bytes.get(body..)?.iter().position(|byte| *byte == b'\'')?;
        for at in body..body + length {
            self.keep(self.bytes[at]);
        }
        self.at = body + length + 1;
        Some(())
    }

    fn double(&mut self) -> Option<()> {
        self.quoted = true;
        self.at += 1;
        loop {
            if self.hole(Unknown::Quoted) {
                continue;
            }
            let next = self.bytes.get(self.at + 1).copied();
            match (*self.bytes.get(self.at)?, next) {
                (b'"', _) => {
                    self.at += 1;
                    return Some(());
                }
                (b'`', _) => return None,
                (b'$', Some(next)) if expands(next) => return None,
                (b'\\', Some(b'\n')) => self.at += 2,
                (b'\\', Some(escaped @ (b'$' | b'`' | b'"' | b'\\'))) => {
                    self.keep(escaped);
                    self.at += 2;
                }
                (byte, _) => self.plain(byte),
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        self.quoted = true;
        let escaped = *self.bytes.get(self.at + 1)?;
        if escaped != b'\n' {
            self.keep(escaped);
        }
        self.at += 2;
        Some(())
    }

    fn dollar(&mut self) -> Option<()> {
        match self.bytes.get(self.at + 1) {
            Some(b'\'') => self.ansi(),
            // The text may be translated.
            Some(b'"') => {
                self.note(Unknown::Quoted);
                self.at += 1;
                self.double()
            }
            Some(next) if expands(*next) => None,
            _ => {
                self.plain(b'$');
                Some(())
            }
        }
    }

    /// Reads `$'…'`, in which backslashes have their meaning from C.
    fn ansi(&mut self) -> Option<()> {
        self.quoted = true;
        self.at += 2;
        loop {
            match *self.bytes.get(self.at)? {
                b'\'' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => {
                    let letter = *self.bytes.get(self.at + 1)?;
                    self.at += 2;
                    self.ansi_escape(letter);
                }
                byte => self.plain(byte),
            }
        }
    }

    fn ansi_escape(&mut self, letter: u8) {
        let plain = match letter {
            b'a' => 0x07,
            b'b' => 0x08,
            b'e' | b'E' => 0x1b,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'\\' | b'\'' | b'"' | b'?' => letter,
            b'0'..=b'7' => {
                self.at -= 1;
                // Three octal digits can exceed a byte; the shell keeps the low part.
                (self.digits(3, 8).unwrap_or(0) & 0xff) as u8
            }
            // Shells differ in how many digits the braces may contain.
            b'x' if self.bytes.get(self.at) == Some(&b'{') => {
                self.note(Unknown::Quoted);
                return;
            }
            b'x' | b'u' | b'U' => {
                let length = match letter {
                    b'x' => 2,
                    b'u' => 4,
                    _ => 8,
                };
                match self.digits(length, 16) {
                    None => {
                        self.keep(b'\\');
                        self.keep(letter);
                    }
                    Some(byte) if letter == b'x' => self.keep((byte & 0xff) as u8),
                    Some(code) => match char::from_u32(code) {
                        Some(c) => c.encode_utf8(&mut [0; 4]).bytes().for_each(|b| self.keep(b)),
                        None => self.keep(0xff),
                    },
                }
                return;
            }
            // A control character, which names no program and no option.
            b'c' => {
                self.note(Unknown::Quoted);
                self.at += usize::from(self.bytes.get(self.at).is_some_and(|byte| *byte != b'\''));
                return;
            }
            _ => {
                self.keep(b'\\');
                letter
            }
        };
        self.keep(plain);
    }

    fn digits(&mut self, most: usize, radix: u32) -> Option<u32> {
        let digit = |byte: &u8| char::from(*byte).to_digit(radix);
        let found = self.bytes[self.at..].iter().take(most).map_while(digit);
        let (count, number) = found.fold((0, 0u32), |(count, number), digit| {
            (count + 1, number.wrapping_mul(radix).wrapping_add(digit))
        });
        self.at += count;
        (count > 0).then_some(number)
    }

    fn special(&mut self, byte: u8, unknown: Unknown) {
        self.note(unknown);
        self.plain(byte);
    }

    fn note(&mut self, unknown: Unknown) {
        self.unknown = self.unknown.max(Some(unknown));
    }

    fn plain(&mut self, byte: u8) {
        self.keep(byte);
        self.at += 1;
    }

    /// Appends to the text, unless something before it is unknown.
    fn keep(&mut self, byte: u8) {
        if self.unknown.is_none() {
            self.text.push(byte);
        }
    }
}

/// Removes quotes from a text, and replaces every expansion with one character.
pub(crate) fn with_holes(text: &str, hole: char) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        let ends = match (c, next) {
            ('\'' | '"', _) => continue,
            ('\\', _) => {
                shown.extend(chars.next().filter(|escaped| *escaped != '\n'));
                continue;
            }
            ('`', _) => '`',
            ('$', Some('(')) => ')',
            ('$', Some('{')) => '}',
            ('$', Some(next)) if next.is_ascii_alphanumeric() || "_@*#?$!-".contains(next) => {
                let name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
                chars.next();
                while name(&next) && chars.next_if(name).is_some() {}
                shown.push(hole);
                continue;
            }
            // A brace before a blank begins a group of commands.
            ('{', Some(next)) if !next.is_whitespace() => '}',
            _ => {
                shown.push(c);
                continue;
            }
        };
        shown.push(hole);
        let begins = match ends {
            ')' => '(',
            '}' => '{',
            _ => ' ',
        };
        let mut open = usize::from(c != '$');
        for inner in chars.by_ref() {
            open += usize::from(inner == begins && ends != '`');
            open -= usize::from(inner == ends);
            if open == 0 {
                break;
            }
        }
    }
    shown
}

/// Tells whether a dollar sign before this byte begins an expansion.
fn expands(next: u8) -> bool {
    next.is_ascii_alphanumeric() || b"_@*#?$!({[-`".contains(&next)
}
