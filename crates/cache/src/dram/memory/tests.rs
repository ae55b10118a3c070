use super::*;

#[test]
fn retired_blocks_are_free_after_a_quiescent_point_within_the_budget() {
    let (arena, budget) =
        (Arena::new((3 * 4096, 0), 4096, None, false).unwrap(), Budget::new(2 * 4096));
    let quiesce = Quiesce::new(1);
    let mut reader = quiesce.join().unwrap();
    quiesce.guard(&reader);
    let mut block = arena.take(&budget, Place::Passing, 0).unwrap();
    let _other = arena.take(&budget, Place::Passing, 0).unwrap();
    assert!(arena.take(&budget, Place::Passing, 0).is_none(), "the budget is spent");
    let stamp = Stamp { accessed: 7, ..Stamp::default() };
    let addr = block.append(&arena, 5, stamp, |out| out.copy_from_slice(b"hello")).unwrap();
    let record = arena.view(quiesce.guard(&reader), addr);
    assert_eq!((record.bytes, record.has(mark::VOID)), (&b"hello"[..], false));
    assert!(block.append(&arena, 4096, stamp, |_| ()).is_none());
    assert!(arena.void(&record), "it was the only one");
    arena.retire(block.id, &quiesce);
    assert_eq!(arena.recycle(&quiesce), 0, "the reader may still look");
    quiesce.refresh(&mut reader);
    assert_eq!(arena.recycle(&quiesce), 1);
    arena.release(1, &budget);
    assert_eq!(budget.used(), 4096);
}

#[test]
fn records_of_a_block_are_walked_in_order() {
    let (arena, budget) = (Arena::new((4096, 0), 4096, None, false).unwrap(), Budget::new(4096));
    let mut block = arena.take(&budget, Place::Passing, 0).unwrap();
    for i in 1..=9u8 {
        let stamp = Stamp::default();
        block.append(&arena, usize::from(i), stamp, |out| out.fill(i)).unwrap();
    }
    let quiesce = Quiesce::new(1);
    let reader = quiesce.join().unwrap();
    let seen: Vec<_> = arena.records(quiesce.guard(&reader), block.id, block.fill()).collect();
    assert_eq!(seen.len(), 9);
    assert!(seen.iter().zip(1..).all(|(r, i)| r.bytes == vec![i; usize::from(i)]));
}
