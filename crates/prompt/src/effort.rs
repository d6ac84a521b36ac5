//! What whoever reads a grammar may spend on it.
//!
//! Schemas that would cost more than these allow are refused when they are read, by what can be counted in them; these
//! are for what remains. Fuel is the unit of `llguidance`: about ten to a microsecond.

/// Fuel to read a grammar: about a fifth of a second.
pub const COMPILE_FUEL: u64 = 1_000_000;
/// Fuel to find out which tokens may follow.
pub const STEP_FUEL: u64 = 200_000;
/// Items of the parser while that is found out.
pub const STEP_ITEMS_MAX: usize = 50_000;
/// Items of one row of the parser: properties of an object and alternatives of a value that can follow.
pub const ROW_ITEMS_MAX: usize = 8_192;
/// States of the lexer, of one or two kilobytes each.
pub const STATES_MAX: usize = 100_000;
/// Symbols of a grammar.
pub const SYMBOLS_MAX: usize = 200_000;
