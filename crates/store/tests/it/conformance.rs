//! Both stores do what every store must.

use std::sync::Arc;

use store::{FileStore, MemoryStore, Store, conformance};

fn check(make: impl Fn() -> Arc<dyn Store>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let failed: Vec<_> = conformance::CASES
        .iter()
        .filter_map(|case| runtime.block_on(case.run(make())).err())
        .map(|violation| violation.to_string())
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn files() {
    let homes = tempfile::tempdir().unwrap();
    let number = std::cell::Cell::new(0);
    check(|| {
        number.set(number.get() + 1);
        let home = homes.path().join(number.get().to_string());
        std::fs::create_dir(&home).unwrap();
        Arc::new(FileStore::new(home))
    });
}

#[test]
fn memory() {
    check(|| Arc::new(MemoryStore::default()));
}
