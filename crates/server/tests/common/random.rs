//! Numbers that a seed repeats.

/// splitmix64: any seed will do.
pub struct Random(pub u64);

impl Random {
    /// `TERRACE_DIFFERENTIAL_SEED`, or the same one each time: what fails today was changed today.
    pub fn seeded() -> (Self, u64) {
        let seed = number("TERRACE_DIFFERENTIAL_SEED").unwrap_or(1);
        println!("TERRACE_DIFFERENTIAL_SEED={seed}");
        (Self(seed), seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// How many requests a random comparison sends: `TERRACE_DIFFERENTIAL_OPS`, or few enough for every
/// run of the tests.
pub fn operations() -> u64 {
    number("TERRACE_DIFFERENTIAL_OPS").unwrap_or(60_000)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
