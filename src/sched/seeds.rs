//! Object trees of a run's kernels, for further ones to start from.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Notify;

use super::order::Step;
use crate::kernel::{ObjectTree, SourceTree, seed};

/// For each source, by what stands for its content, the first of them whose
/// objects can be used: itself, or one that differs in a few files alone.
pub(super) fn relatives(sources: &[SourceTree]) -> BTreeMap<String, String> {
    let mut firsts: Vec<&SourceTree> = Vec::new();
    let mut relatives = BTreeMap::new();
    for source in sources {
        // One that cannot be read is built from by itself, if at all.
        let near = |first: &&&SourceTree| seed::changes(&first.dir, &source.dir).is_ok_and(|c| c.is_some());
        let first = firsts.iter().find(near).copied().unwrap_or(source);
        relatives.insert(source.fingerprint.clone(), first.fingerprint.clone());
        if first.fingerprint == source.fingerprint {
            firsts.push(source);
        }
    }
    relatives
}

/// The trees that are there, and who waits for which.
#[derive(Debug, Default)]
pub(super) struct Seeds {
    state: RefCell<State>,
    advanced: Notify,
}

#[derive(Debug, Default)]
struct State {
    trees: Vec<(usize, Arc<ObjectTree>)>,
    /// Builds that have ended, well or not.
    ended: BTreeSet<usize>,
    /// How many builds wait for a build.
    waiting: BTreeMap<usize, usize>,
    /// Builds that have not ended.
    left: usize,
}

impl Seeds {
    /// For builds that will be done in these steps.
    pub(super) fn expect(&self, steps: &[Step]) {
        let mut state = self.state.borrow_mut();
        state.left = steps.len();
        for leader in steps.iter().filter_map(|step| step.after) {
            *state.waiting.entry(leader).or_default() += 1;
        }
    }

    /// Waits for the build that another one follows, and gives the trees that
    /// there are then.
    pub(super) async fn for_step(&self, step: Step) -> Vec<Arc<ObjectTree>> {
        while let Some(leader) = step.after {
            let advanced = self.advanced.notified();
            if self.state.borrow().ended.contains(&leader) {
                break;
            }
            advanced.await;
        }
        self.state.borrow().trees.iter().map(|(_, tree)| tree.clone()).collect()
    }

    /// A build has ended; `tree` is what others can start from. Of trees that
    /// serve alike, the newest is enough, but for those that somebody waits for.
    pub(super) fn ended(&self, step: Step, tree: Option<ObjectTree>) {
        let mut state = self.state.borrow_mut();
        let State { trees, ended, waiting, left } = &mut *state;
        *left = left.saturating_sub(1);
        ended.insert(step.build);
        if let Some(waiting) = step.after.and_then(|leader| waiting.get_mut(&leader)) {
            *waiting = waiting.saturating_sub(1);
        }
        let is_wanted = |build: &usize| waiting.get(build).is_some_and(|n| *n > 0);
        if let Some(tree) = tree {
            trees.retain(|(build, other)| is_wanted(build) || !other.is_alike(&tree));
            trees.push((step.build, Arc::new(tree)));
        }
        if *left == 0 {
            trees.clear();
        }
        self.advanced.notify_waiters();
    }
}
