//! The token of an engine: the thread that holds the token may run the engine.
//!
//! The token is a mutex, which takes one atomic operation when uncontended, and a count of waiting threads. The count shows a thread that
//! takes the token again and again that another thread wants it. A mutex alone is not fair: such a thread would starve all others.

use crate::primitives::{AtomicU32, Mutex, MutexGuard, Ordering};

/// A token, and the value that its holder may access.
#[derive(Debug)]
pub(crate) struct Token<T> {
    value: Mutex<T>,
    waiting: AtomicU32,
}

impl<T> Token<T> {
    /// Creates a token that no thread holds.
    pub(crate) fn new(value: T) -> Token<T> {
        Token { value: Mutex::new(value), waiting: AtomicU32::new(0) }
    }

    /// Takes the token if no thread holds it and no thread waits for it.
    #[inline]
    pub(crate) fn try_take(&self) -> Option<MutexGuard<'_, T>> {
        if self.is_wanted() {
            return None;
        }
        self.value.try_lock().ok()
    }

    /// Takes the token; waits for the thread that holds it.
    pub(crate) fn take(&self) -> MutexGuard<'_, T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // A holder that panicked has ended the process in release builds. In tests, its own panic is more informative than a second one.
        let guard = self.value.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Whether a thread waits for the token. A thread that runs the engine for a long time then releases it.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_waits_gets_it_from_a_thread_that_runs_for_ever() {
        let token = std::sync::Arc::new(Token::new(0u64));
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let runner = std::thread::spawn({
            let (token, stop) = (std::sync::Arc::clone(&token), std::sync::Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut guard = token.take();
                    while !token.is_wanted() && !stop.load(Ordering::Relaxed) {
                        *guard += 1;
                    }
                    drop(guard);
                    while token.is_wanted() {
                        std::thread::yield_now();
                    }
                }
            }
        });
        (0..100).for_each(|_| *token.take() += 1);
        stop.store(true, Ordering::Relaxed);
        runner.join().unwrap();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::Arc;

    #[test]
    fn two_takers_and_one_that_tries() {
        loom::model(|| {
            let token = Arc::new(Token::new(0));
            let other = Arc::clone(&token);
            let thread = loom::thread::spawn(move || *other.take() += 1);
            let tried = token.try_take().map(|mut guard| *guard += 1).is_some();
            *token.take() += 1;
            thread.join().unwrap();
            assert_eq!(*token.take(), 2 + i32::from(tried));
            assert!(!token.is_wanted());
        });
    }
}
