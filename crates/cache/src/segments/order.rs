//! Sorting records by hash order.
//!
//! Positions are evenly distributed, so each record goes about where it belongs at once: into one of as many bins as
//! there are records. Insertion sort does the rest within a bin (MacLaren, "Internal sorting by radix plus sifting",
//! Journal of the ACM 13, 1966).

use crate::segments::packing::Item;

/// A bin with more records means that positions are not evenly distributed.
const BIN_MAX: u32 = 32;

/// Sorts by name; stable.
pub(crate) fn sort<S: Copy>(items: &mut [Item<'_, S>]) {
    let bins = items.len();
    let bin = |item: &Item<'_, S>| ((u64::from(item.name.pos) * bins as u64) >> 32) as usize;
    let mut ends = vec![0u32; items.len()];
    items.iter().for_each(|item| ends[bin(item)] += 1);
    if ends.iter().any(|&count| count > BIN_MAX) {
        return items.sort_by_key(|item| item.name.order());
    }
    let mut end = 0;
    for count in &mut ends {
        // The start of the bin; the next loop moves it to the end.
        end += std::mem::replace(count, end);
    }
    let mut places = vec![(0, 0); items.len()];
    for (at, item) in (0..).zip(items.iter()) {
        let end = &mut ends[bin(item)];
        places[*end as usize] = (item.name.order(), at);
        *end += 1;
    }
    sift(&mut places);
    permute(items, &mut places);
}

/// Insertion sort.
fn sift(places: &mut [(u64, u32)]) {
    for next in 1..places.len() {
        let moved = places[next];
        let mut at = next;
        while at > 0 && places[at - 1].0 > moved.0 {
            places[at] = places[at - 1];
            at -= 1;
        }
        places[at] = moved;
    }
}

/// Moves each item to the place that names it, cycle by cycle; overwrites the names.
fn permute<T: Copy>(items: &mut [T], places: &mut [(u64, u32)]) {
    for start in 0..items.len() {
        let (first, mut at) = (items[start], start);
        loop {
            let source = std::mem::replace(&mut places[at].1, at as u32) as usize;
            if source == start {
                break;
            }
            (items[at], at) = (items[source], source);
        }
        items[at] = first;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::records::key::Name;
    use proptest::prelude::*;

    proptest! {
        /// Evenly distributed positions, few ones, and many in a row.
        #[test]
        fn sort_agrees_with_a_stable_sort(
            names in prop::collection::vec(
                (prop_oneof![any::<u32>(), (0u32..4).prop_map(|pos| pos << 30), 0u32..99], 0u16..4),
                0..300,
            ),
        ) {
            let item = |(arrival, &(pos, fingerprint))| {
                Item { arrival, ..Item::new(Name { pos, fingerprint }, &[], ()) }
            };
            let mut items: Vec<_> = (0..).zip(&names).map(item).collect();
            let mut expected = items.clone();
            expected.sort_by_key(|item| item.name);
            sort(&mut items);
            let shown = |items: &[Item<'_, ()>]| -> Vec<_> {
                items.iter().map(|item| (item.name, item.arrival)).collect()
            };
            prop_assert_eq!(shown(&items), shown(&expected));
        }
    }
}
