//! Settings with a fixed list of values: declares their enums, and the error that lists the values.

/// Declares an enum whose variants are written as words, with `as_str` and parsing from a string.
macro_rules! choice {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $( $(#[$variant_meta:meta])* $variant:ident = $word:literal, )+ }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $( $(#[$variant_meta])* $variant, )+ }

        impl $name {
            /// Every value, in the order in which messages list them.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )+];

            /// Returns the word a configuration file uses.
            pub fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $word, )+ }
            }
        }

        impl crate::section::Read for $name {
            fn read(
                field: &crate::section::Field<'_>,
                notes: &mut crate::section::Notes,
            ) -> Result<Self, crate::error::ConfigError> {
                let word = <String as crate::section::Read>::read(field, notes)?;
                let found = Self::ALL.iter().copied().find(|choice| choice.as_str() == word);
                found.ok_or_else(|| crate::choice::refuse(field, &word, &[$( $word, )+]))
            }
        }
    };
}

pub(crate) use choice;

/// Builds the error for a word that is not one of `words`.
pub(crate) fn refuse(
    field: &crate::section::Field<'_>,
    word: &str,
    words: &[&str],
) -> crate::error::ConfigError {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    field.bad_value(&format!("cannot be {word:?}"), &format!("Use one of {}.", quoted.join(", ")))
}
