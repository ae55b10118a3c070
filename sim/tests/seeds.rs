//! Seeds that found something once, and that a run depends on nothing but its seed.

use terrace_sim::{Options, run};

/// Each of them failed once while cache and simulator were written; what some of them decide has changed
/// since.
const FOUND: [u64; 34] = [
    67, 87, 112, 131, 165, 203, 225, 239, 290, 305, 327, 347, 384, 394, 472, 522, 538, 614, 636,
    674, 701, 726, 1126, 1260, 1372, 2271, 5299, 12207, 9706, 106815, 107013, 1005525, 1044486,
    3081877,
];

/// The same with ladders.
const FOUND_WITH_LADDERS: [u64; 1] = [505942];

/// The same with drives that come and go.
const FOUND_WITH_MEMBERS: [u64; 7] =
    [1107198, 1112210, 3006956, 3009986, 3021327, 3058961, 3077122];

#[test]
fn seeds_that_found_something_find_nothing_more() {
    find_nothing(&FOUND, Options::default());
    find_nothing(&FOUND_WITH_LADDERS, Options { is_ladder: true, ..Options::default() });
    find_nothing(&FOUND_WITH_MEMBERS, Options { moves_drives: true, ..Options::default() });
}

fn find_nothing(seeds: &[u64], options: Options) {
    for &seed in seeds {
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
