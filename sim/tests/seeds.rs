//! Seeds that found something once, and that a run depends on nothing but its seed.

use terrace_sim::{Options, run};

/// Each of them failed once while cache and simulator were written; what some of them decide has changed
/// since.
const FOUND: [u64; 31] = [
    67, 87, 112, 131, 165, 203, 225, 239, 290, 305, 327, 347, 384, 394, 472, 522, 538, 614, 636,
    674, 701, 726, 1126, 1260, 1372, 2271, 5299, 12207, 9706, 106815, 107013,
];

/// The same with ladders.
const FOUND_WITH_LADDERS: [u64; 1] = [505942];

#[test]
fn seeds_that_found_something_find_nothing_more() {
    let with_ladders = Options { is_ladder: true, ..Options::default() };
    let plain = FOUND.map(|seed| (seed, Options::default()));
    for (seed, options) in plain.into_iter().chain(FOUND_WITH_LADDERS.map(|s| (s, with_ladders))) {
        let outcome = run(seed, options);
        assert!(outcome.failure.is_none(), "seed {seed}, {options:?}: {:#?}", outcome.failure);
    }
}

#[test]
fn a_seed_repeats_a_run() {
    let mut operations = 0;
    for seed in 1..40 {
        let (first, second) = (run(seed, Options::default()), run(seed, Options::default()));
        assert_eq!(first.digest, second.digest, "seed {seed}");
        operations += first.tally.operations;
    }
    assert!(operations > 10_000, "{operations} operations");
    assert_ne!(run(1, Options::default()).digest, run(2, Options::default()).digest);
}
