//! No async runtime may enter the dependency tree, development dependencies included.

const ASYNC_RUNTIMES: [&str; 12] = [
    "tokio",
    "async-std",
    "smol",
    "async-executor",
    "async-io",
    "futures-executor",
    "hyper",
    "tonic",
    "actix-rt",
    "glommio",
    "monoio",
    "embassy-executor",
];

#[test]
fn no_async_runtime_in_the_tree() {
    let lock = include_str!("../Cargo.lock");
    let packages: Vec<&str> = lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).collect();
    assert!(packages.contains(&"mio"), "Cargo.lock was not read as expected");
    let found: Vec<_> = packages.iter().filter(|name| ASYNC_RUNTIMES.contains(name)).collect();
    assert!(found.is_empty(), "async runtimes in Cargo.lock: {found:?}");
}
