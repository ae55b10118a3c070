//! Things with stable numbers that are never mistaken for later ones at the same place.

/// Names an entry of a [`Slab`]; its place in the low 32 bits, a generation above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id(u64);

impl Id {
    /// The number that a system call carries around.
    pub(crate) fn to_u64(self) -> u64 {
        self.0
    }

    /// What [`Id::to_u64`] gave. Any other number names nothing, or another entry: never unsound.
    pub(crate) fn from_u64(number: u64) -> Self {
        Self(number)
    }

    fn new(place: usize, generation: u32) -> Self {
        Self(place as u64 | u64::from(generation) << 32)
    }

    fn place(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

struct Entry<T> {
    /// Counts the values that were in this place. Its topmost bit stays clear, so that numbers near
    /// `u64::MAX` never name an entry.
    generation: u32,
    value: Option<T>,
}

/// A growing table with reused places.
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    vacant: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), vacant: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> Id {
        self.insert_with(|_| value)
    }

    /// Inserts what knows its own id.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(Id) -> T) -> Id {
        if let Some(place) = self.vacant.pop() {
            let place = place as usize;
            let entry = &mut self.entries[place];
            let id = Id::new(place, entry.generation);
            entry.value = Some(make(id));
            return id;
        }
        let id = Id::new(self.entries.len(), 0);
        self.entries.push(Entry { generation: 0, value: Some(make(id)) });
        id
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let entry = self.entries.get_mut(id.place())?;
        if entry.generation != id.generation() {
            return None;
        }
        entry.value.as_mut()
    }

    pub(crate) fn remove(&mut self, id: Id) -> Option<T> {
        let entry = self.entries.get_mut(id.place())?;
        if entry.generation != id.generation() {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = (entry.generation + 1) & (u32::MAX >> 1);
        self.vacant.push(id.place() as u32);
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.vacant.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        let occupied = self.entries.iter().enumerate().filter(|(_, entry)| entry.value.is_some());
        occupied.map(|(place, entry)| Id::new(place, entry.generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_number_names_nothing() {
        let mut slab = Slab::new();
        let a = slab.insert("a");
        assert_eq!(slab.remove(a), Some("a"));
        let b = slab.insert("b");
        assert_ne!(a, b);
        assert_eq!(slab.get_mut(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get_mut(b), Some(&mut "b"));
        assert_eq!((slab.len(), slab.ids().collect::<Vec<_>>()), (1, vec![b]));
        assert_eq!(slab.get_mut(Id::from_u64(u64::MAX)), None);
    }
}
