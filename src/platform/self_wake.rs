//! Polls a future again at once when it wakes itself.
//!
//! hyper wakes the future of its connection when a handler takes the body. tokio puts a future that was woken during its poll behind
//! the others, and wakes another thread for it, which costs as much as a small request.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Polls in a row: a future that always wakes itself must not keep a thread.
const POLLS_MAX: usize = 8;

const IDLE: u8 = 0;
const POLLED: u8 = 1;
const WOKEN: u8 = 2;

#[derive(Default)]
struct SelfWake {
    state: AtomicU8,
    outer: AtomicWaker,
}

impl Wake for SelfWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let woken = self.state.compare_exchange(POLLED, WOKEN, Ordering::SeqCst, Ordering::SeqCst);
        if woken == Err(IDLE) {
            self.outer.wake();
        }
    }
}

impl SelfWake {
    /// Whether the future was not woken during its poll. From now on wakes go to whoever polls it.
    fn rests(&self) -> bool {
        self.state.compare_exchange(POLLED, IDLE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

pub fn polled_again<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let mut future = Box::pin(future);
    let own = Arc::new(SelfWake::default());
    let waker = Waker::from(own.clone());
    poll_fn(move |context| {
        own.outer.register(context.waker());
        for _ in 0..POLLS_MAX {
            own.state.store(POLLED, Ordering::SeqCst);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(output);
            }
            if own.rests() {
                return Poll::Pending;
            }
        }
        own.state.store(IDLE, Ordering::SeqCst);
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Outer(AtomicUsize);

    impl Wake for Outer {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Outer {
        fn poll<F: Future>(self: &Arc<Self>, future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
            future.poll(&mut Context::from_waker(&Waker::from(self.clone())))
        }

        fn wakes(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    /// Wakes itself so often before it is done.
    fn waking_itself(mut times: usize) -> impl Future<Output = ()> {
        poll_fn(move |context| {
            if times == 0 {
                return Poll::Ready(());
            }
            times -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[test]
    fn self_waking_future_is_repolled_without_a_wakeup() {
        let outer = Arc::new(Outer::default());
        assert!(outer.poll(pin!(polled_again(waking_itself(POLLS_MAX - 1)))).is_ready());
        assert_eq!(outer.wakes(), 0);
    }

    #[test]
    fn always_ready_future_yields_to_others() {
        let outer = Arc::new(Outer::default());
        let mut future = pin!(polled_again(waking_itself(POLLS_MAX)));
        assert!(outer.poll(future.as_mut()).is_pending());
        assert_eq!(outer.wakes(), 1);
        assert!(outer.poll(future).is_ready());
    }

    #[test]
    fn wake_between_polls_wakes_the_polling_caller() {
        let (outer, (send, receive)) = (Arc::new(Outer::default()), tokio::sync::oneshot::channel());
        let mut future = pin!(polled_again(receive));
        assert!(outer.poll(future.as_mut()).is_pending());
        assert_eq!(outer.wakes(), 0);
        assert_eq!(send.send(7), Ok(()));
        assert_eq!(outer.wakes(), 1);
        assert_eq!(outer.poll(future), Poll::Ready(Ok(7)));
    }
}
