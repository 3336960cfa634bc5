//! Events that wait for a connection: a line for each kind, in which owners take turns.

use crate::backend::kind::{KINDS, RequestKind};
use crate::backend::shares::Seat;
use crate::backend::slot::Post;
use crate::limits::owner::OwnerId;
use std::collections::{HashMap, VecDeque};

/// The lines. Whoever has an event in a line has one place in it, and goes to its end with the next event.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    lines: [Line; KINDS],
    /// The kind that is served first.
    next: usize,
    /// No event is due before.
    due_ms: Option<u64>,
}

#[derive(Debug, Default)]
struct Line {
    owners: VecDeque<OwnerId>,
    /// At least one of each of these owners, the oldest first.
    posts: HashMap<OwnerId, VecDeque<Post>>,
}

impl Waiting {
    pub(crate) fn push(&mut self, post: Post) {
        let due_ms = self.due_ms();
        let due_ms = due_ms.map_or(post.due_ms, |due_ms| due_ms.min(post.due_ms));
        self.due_ms = Some(due_ms);
        let line = &mut self.lines[post.kind() as usize];
        let owner = post.owner();
        let posts = line.posts.entry(owner).or_default();
        if posts.is_empty() {
            line.owners.push_back(owner);
        }
        posts.push_back(post);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.owners.is_empty())
    }

    /// When [`Waiting::take_late`] is due.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.due_ms.filter(|_| !self.is_empty())
    }

    /// The next event that `seat` has a seat for. Kinds take turns, and the owners of each.
    pub(crate) fn take(
        &mut self,
        mut seat: impl FnMut(RequestKind, OwnerId) -> Option<Seat>,
    ) -> Option<Post> {
        for step in 0..KINDS {
            let kind = RequestKind::ALL[(self.next + step) % KINDS];
            let line = &mut self.lines[kind as usize];
            let mut owners = line.owners.iter().enumerate();
            let found = owners.find_map(|(place, owner)| Some((place, seat(kind, *owner)?)));
            if let Some((place, seat)) = found {
                self.next = (kind as usize + 1) % KINDS;
                let mut post = line.take(place)?;
                post.seat = Some(seat);
                return Some(post);
            }
        }
        None
    }

    /// The events whose time is over.
    pub(crate) fn take_late(&mut self, now_ms: u64) -> Vec<Post> {
        let mut late = Vec::new();
        if self.due_ms.is_none_or(|due_ms| now_ms < due_ms) {
            return late;
        }
        for line in &mut self.lines {
            for posts in line.posts.values_mut() {
                while posts.front().is_some_and(|post| post.due_ms <= now_ms) {
                    late.extend(posts.pop_front());
                }
            }
            line.forget_empty();
        }
        let lines = self.lines.iter();
        let fronts = lines.flat_map(|line| line.posts.values().filter_map(VecDeque::front));
        self.due_ms = fronts.map(|post| post.due_ms).min();
        late
    }

    /// All events of a kind.
    pub(crate) fn take_kind(&mut self, kind: RequestKind) -> Vec<Post> {
        let line = std::mem::take(&mut self.lines[kind as usize]);
        line.posts.into_values().flatten().collect()
    }

    pub(crate) fn take_all(&mut self) -> Vec<Post> {
        self.due_ms = None;
        let kinds = RequestKind::ALL.into_iter();
        kinds.flat_map(|kind| self.take_kind(kind)).collect()
    }
}

impl Line {
    /// The oldest event of the owner at this place, who goes to the end if there are others.
    fn take(&mut self, place: usize) -> Option<Post> {
        let owner = self.owners.remove(place)?;
        let posts = self.posts.get_mut(&owner)?;
        let post = posts.pop_front();
        if posts.is_empty() {
            self.posts.remove(&owner);
        } else {
            self.owners.push_back(owner);
        }
        post
    }

    fn forget_empty(&mut self) {
        self.posts.retain(|_, posts| !posts.is_empty());
        let posts = &self.posts;
        self.owners.retain(|owner| posts.contains_key(owner));
    }
}
