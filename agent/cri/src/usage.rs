//! Which image was seen first and used last when: what the kubelet's order of images needs, and no runtime tells.

use std::collections::BTreeMap;

use brink_core::base::Moment;

use crate::state::{Image, State};

/// What is known of one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was first seen; `None` of one that was there at the first look: nobody knows since when, and the kubelet takes such
    /// ones for old.
    pub first_seen: Option<Moment>,
    /// When a container was last seen on it; `None` as long as none was.
    pub last_used: Option<Moment>,
}

/// What is known of every image that there is. It holds one entry for each image of the runtime, and forgets those that are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    images: BTreeMap<Key, Record>,
    /// Whether anybody has looked before.
    has_looked: bool,
}

/// The kubelet tells images apart by identity and handler.
type Key = (String, String);

fn key(image: &Image) -> Key {
    (image.id.clone(), image.handler.clone())
}

impl Records {
    /// Notes what there is and what is in use. `now` is by any one clock that does not go backwards; the kubelet notes every five
    /// minutes and before it removes images.
    pub fn observe(&mut self, now: Moment, state: &State) {
        let mut noted = BTreeMap::new();
        let new = Record {
            first_seen: self.has_looked.then_some(now),
            last_used: None,
        };
        for image in &state.images {
            let key = key(image);
            let mut record = self.images.get(&key).copied().unwrap_or(new);
            if state.containers.iter().any(|one| one.uses(image)) {
                record.last_used = Some(now);
            }
            noted.insert(key, record);
        }
        self.images = noted;
        self.has_looked = true;
    }

    /// What is known of an image; `None` for one that was not there when it was last noted.
    pub fn of(&self, image: &Image) -> Option<Record> {
        self.images.get(&key(image)).copied()
    }

    /// How many images are known.
    pub fn len(&self) -> usize {
        self.images.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{container, image};
    use crate::state::Standing;

    #[test]
    fn images_are_noted_when_they_come_and_while_they_are_used() {
        let at = Moment::from_secs;
        let mut state = State {
            images: vec![image("a"), image("b")],
            containers: vec![container("c", "p", Standing::Exited, &["b"])],
            ..State::default()
        };
        let mut records = Records::default();
        records.observe(at(1), &state);
        let check = |records: &Records, id: &str, expected: Option<(Option<i64>, Option<i64>)>| {
            let expected = expected.map(|(first, last)| Record {
                first_seen: first.map(at),
                last_used: last.map(at),
            });
            assert_eq!(records.of(&image(id)), expected, "{id}");
        };
        // Since when these are there nobody knows.
        check(&records, "a", Some((None, None)));
        check(&records, "b", Some((None, Some(1))));
        state.images.push(image("c"));
        records.observe(at(2), &state);
        check(&records, "b", Some((None, Some(2))));
        check(&records, "c", Some((Some(2), None)));
        state.containers.clear();
        state.images.remove(0);
        records.observe(at(3), &state);
        check(&records, "a", None);
        check(&records, "b", Some((None, Some(2))));
        check(&records, "c", Some((Some(2), None)));
        assert_eq!(records.len(), 2);
    }
}
