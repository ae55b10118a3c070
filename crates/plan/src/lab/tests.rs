//! What the policy promises, held against the model.

use super::optimum::Optimum;
use super::peers::{Fifo, Lru};
use super::run::{Counts, run};
use super::s3fifo::S3Fifo;
use super::sieve::Sieve;
use super::stream::{Kind, Stream};
use super::tiers::{Sizes, Tiers};
use super::tinylfu::TinyLfu;
use super::{Answer, Policy};
use crate::Popularity;
use terrace_policy::WritePolicy;

const OBJECTS: u32 = 40_000;

/// All objects on flash, and this share of them in DRAM, in percent; every so many requests.
fn all_on_flash(stream: &Stream, dram_percent: f64, every: usize) -> (Counts, Vec<f64>, u64) {
    let dram = (stream.objects as f64 * dram_percent / 100.0) as usize;
    let fresh = dram / 20;
    let flash = stream.objects * 4 / 3;
    let sizes = Sizes { fresh, copies: dram - fresh, flash, ghost: 0, counters: 8.0 };
    let mut tiers = Tiers::new(sizes, WritePolicy::AllOnce, stream.objects);
    tiers.load(0..stream.objects as u32);
    let (counts, series) = run(&mut tiers, stream, stream.len() / 2, every);
    (counts, series, tiers.promotions)
}

#[test]
fn dram_holds_what_is_popular() {
    let popularity = Popularity::ZipfMandelbrot { s: 2.5, beta: 0.03 };
    for (percent, sets, least) in
        [(12.5, 0, 0.97), (5.0, 0, 0.96), (3.0, 0, 0.94), (12.5, 20, 0.96), (7.0, 20, 0.94)]
    {
        let stream = Stream::make(Kind::ZipfMandelbrot, OBJECTS, 2_000_000, sets);
        let (counts, ..) = all_on_flash(&stream, percent, 0);
        assert_eq!(counts.misses, 0, "below full nothing is lost");
        let ideal = popularity.hits(percent / 100.0, OBJECTS.into());
        let share = counts.dram_share() / ideal;
        assert!(share >= least, "{percent} % of DRAM, {sets} % SETs: {share:.3} of the ideal");
    }
}

#[test]
fn a_loop_and_uniform_requests_replace_few_copies() {
    for (kind, rounds) in [(Kind::Loop, 10), (Kind::Uniform, 20)] {
        let requests = OBJECTS as usize * rounds;
        let stream = Stream::make(kind, OBJECTS, requests, 0);
        for (percent, most) in [(10, 0.01), (3, 0.03)] {
            let (counts, _, promotions) = all_on_flash(&stream, f64::from(percent), 0);
            let replaced = promotions.saturating_sub(u64::from(OBJECTS * percent / 100));
            let share = replaced as f64 / (counts.flash * 2) as f64;
            assert!(share < most, "{kind:?}, {percent} %: {share:.3} replaced per read");
        }
    }
}

#[test]
fn a_new_hot_set_is_followed_soon() {
    let stream = Stream::make(Kind::Shift, OBJECTS, 2_000_000, 0);
    for (percent, most) in [(12.5, 6), (7.0, 6), (3.0, 10)] {
        let hot = (f64::from(OBJECTS) * percent / 100.0) as usize;
        let (_, series, _) = all_on_flash(&stream, percent, hot);
        let shift = stream.len() / 2 / hot;
        let steady = series[shift - 10..shift].iter().sum::<f64>() / 10.0;
        let after = series[shift + most - 1..=shift + most].iter().sum::<f64>() / 2.0;
        let back = after / steady;
        assert!(back >= 0.9, "{percent} %: {back:.3} back after {most} times the hot set");
    }
}

#[test]
fn requests_that_are_all_alike_replace_few_copies_after_popular_ones() {
    let popular = Stream::make(Kind::ZipfMandelbrot, OBJECTS, 1_000_000, 0);
    let alike = Stream::make(Kind::Uniform, OBJECTS, 1_000_000, 0);
    let copies = OBJECTS as usize / 10;
    let sizes = Sizes {
        fresh: copies / 20,
        copies,
        flash: popular.objects * 4 / 3,
        ghost: 0,
        counters: 8.0,
    };
    let mut tiers = Tiers::new(sizes, WritePolicy::AllOnce, popular.objects);
    tiers.load(0..OBJECTS);
    run(&mut tiers, &popular, 0, 0);
    let before = tiers.promotions;
    run(&mut tiers, &alike, 0, 0);
    let replaced = (tiers.promotions - before) as f64 / copies as f64;
    assert!(replaced < 2.0, "{replaced:.2} times as many as there are");
}

#[test]
fn peers_hold_no_more_than_their_room_and_none_beats_the_optimum() {
    let stream = Stream::make(Kind::Zipf, 2000, 60_000, 0);
    let (objects, room) = (stream.objects, 200);
    let misses = |policy: &mut dyn FnMut(u32) -> Answer| {
        stream.iter().filter(|&(object, _)| policy(object) == Answer::Miss).count()
    };
    let all = stream.iter().map(|(object, _)| object);
    let mut optimum = Optimum::new(room, all, objects);
    let least = misses(&mut |object| optimum.get(object));
    let mut lru = Lru::new(room, objects);
    let of_lru = misses(&mut |object| lru.get(object));
    let mut fifo = Fifo::new(room, objects);
    let of_fifo = misses(&mut |object| fifo.get(object));
    let mut sieve = Sieve::new(room, objects);
    let of_sieve = misses(&mut |object| sieve.get(object));
    let mut s3 = S3Fifo::new(room, 10, objects);
    let of_s3 = misses(&mut |object| s3.get(object));
    let mut tiny = TinyLfu::new(room, objects);
    let of_tiny = misses(&mut |object| tiny.get(object));
    assert!(of_lru < of_fifo && of_sieve < of_lru && of_s3 < of_lru && of_tiny < of_lru);
    assert!(least < of_s3.min(of_tiny).min(of_sieve), "{least} {of_s3} {of_tiny} {of_sieve}");
}

#[test]
fn write_policies_trade_writes_for_misses() {
    let stream = Stream::make(Kind::Zipf, 20_000, 400_000, 0);
    let counts = WritePolicy::ALL.map(|write_policy| {
        let sizes = Sizes { fresh: 100, copies: 100, flash: 1800, ghost: 2000, counters: 8.0 };
        run(&mut Tiers::new(sizes, write_policy, stream.objects), &stream, 0, 0).0
    });
    let written = counts.map(|counts| counts.written);
    assert!(written.is_sorted_by(|more, less| more > less), "{written:?}");
    let (lru, _) = run(&mut Lru::new(2000, stream.objects), &stream, 0, 0);
    assert!(counts[0].misses <= lru.misses * 102 / 100, "{} {}", counts[0].misses, lru.misses);
}
