//! Tokens for whatever keeps one of the host's processors busy: compilers of
//! all kernels that are built at once, and guests beside them.
//!
//! The protocol is GNU make's (its manual, "Sharing Job Slots with GNU make"):
//! a pipe with one byte for each job that may run. A make has the right to one
//! job from whoever started it, so a [`Token`] is taken before it starts; for
//! every further job it takes a byte from the pipe and puts it back. So the
//! serial end of one kernel leaves its tokens to the next kernel's compilers.
//!
//! A make that is killed takes along the tokens of its further jobs: fewer jobs
//! run from then on, never more.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use jobserver::{Acquired, Client, HelperThread};
use tokio::sync::oneshot;

/// The right to keep one processor busy, until it is dropped.
#[derive(Debug)]
pub struct Token {
    _acquired: Acquired,
}

/// In which order tokens are given to those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Before those that can wait.
    First,
    /// When nobody else waits.
    Last,
}

/// A number of tokens, shared with every make that is started with it.
#[derive(Debug)]
pub struct Jobserver {
    client: Client,
    helper: HelperThread,
    waiting: Arc<Mutex<Waiting>>,
}

type Giving = oneshot::Sender<io::Result<Token>>;

#[derive(Debug, Default)]
struct Waiting {
    first: VecDeque<Giving>,
    last: VecDeque<Giving>,
}

impl Jobserver {
    /// A jobserver with so many tokens, at least one.
    ///
    /// # Errors
    /// The system has no pipe or no thread left.
    pub fn new(tokens: usize) -> io::Result<Jobserver> {
        let client = Client::new(tokens.max(1))?;
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let queue = waiting.clone();
        let give = move |token: io::Result<Acquired>| {
            let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.give(token.map(|acquired| Token { _acquired: acquired }));
        };
        let helper = client.clone().into_helper_thread(give)?;
        Ok(Jobserver { client, helper, waiting })
    }

    /// Waits for a token.
    ///
    /// # Errors
    /// The pipe is broken.
    pub async fn token(&self, turn: Turn) -> io::Result<Token> {
        let (give, given) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            match turn {
                Turn::First => waiting.first.push_back(give),
                Turn::Last => waiting.last.push_back(give),
            }
        }
        self.helper.request_token();
        given.await.unwrap_or_else(|_| Err(io::Error::other("the jobserver has ended")))
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }
}

impl Waiting {
    /// Gives to the first who still waits; with nobody left it goes back.
    fn give(&mut self, mut token: io::Result<Token>) {
        while let Some(give) = self.first.pop_front().or_else(|| self.last.pop_front()) {
            match give.send(token) {
                Ok(()) => return,
                Err(back) => token = back,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn comes(token: impl Future<Output = io::Result<Token>>) -> Option<Token> {
        tokio::time::timeout(Duration::from_millis(300), token).await.ok().map(Result::unwrap)
    }

    #[tokio::test]
    async fn there_are_as_many_tokens_as_were_made() {
        let jobs = Jobserver::new(2).unwrap();
        let (one, two) = (comes(jobs.token(Turn::Last)).await, comes(jobs.token(Turn::Last)).await);
        assert!(one.is_some() && two.is_some());
        assert!(comes(jobs.token(Turn::First)).await.is_none(), "a third of two");
        drop(one);
        assert!(comes(jobs.token(Turn::Last)).await.is_some(), "the one that was given up is lost");
    }

    #[tokio::test]
    async fn whoever_cannot_wait_comes_first_and_who_has_left_gets_none() {
        let jobs = Jobserver::new(1).unwrap();
        let held = jobs.token(Turn::Last).await.unwrap();
        let (mut last, mut left, mut first) = (
            Box::pin(jobs.token(Turn::Last)),
            Box::pin(jobs.token(Turn::First)),
            Box::pin(jobs.token(Turn::First)),
        );
        for waiting in [&mut last, &mut left, &mut first] {
            assert!(comes(waiting).await.is_none());
        }
        drop(left);
        drop(held);
        let got = comes(first).await;
        assert!(got.is_some(), "the one that came first cannot wait");
        assert!(comes(&mut last).await.is_none(), "one token was given twice");
        drop(got);
        assert!(comes(last).await.is_some());
    }
}
