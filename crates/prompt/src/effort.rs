//! Limits for processing a grammar.
//!
//! Schemas that would exceed these are refused when they are parsed, as far as that can be counted in
//! advance; these limits are for the rest. Fuel is the unit of `llguidance`: about ten per microsecond.

/// Fuel to compile a grammar: about a fifth of a second.
pub const COMPILE_FUEL: u64 = 1_000_000;
/// Fuel to compute which tokens may follow.
pub const STEP_FUEL: u64 = 200_000;
/// Parser items for one such step.
pub const STEP_ITEMS_MAX: usize = 50_000;
/// Parser items in one row: properties of an object and alternatives of a value that can follow.
pub const ROW_ITEMS_MAX: usize = 8_192;
/// Lexer states, of one or two kilobytes each.
pub const STATES_MAX: usize = 100_000;
pub const SYMBOLS_MAX: usize = 200_000;
