//! Threads on disks of all kinds, from the outside.
#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod bases;
mod calls;
mod conformance;
mod damage;
mod disk;
mod ends;
mod extras;
mod imports;
mod index;
mod index_home;
mod power;
mod record;
mod threads;
