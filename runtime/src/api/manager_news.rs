//! What the connection manager of a NIC with a backup must know of it: left here by the control thread, taken by the manager's own.

use std::sync::Mutex;

use softnic_cm::Route;
use softnic_wire::Qpn;
use softnic_wire::failover::Side;
use softnic_wire::mad::MAD_LEN;

use crate::locked::lock;

/// MADs that wait for the manager; more are lost, and come again.
const MAX_MADS: usize = 4096;

/// Something that happened at the backup.
pub(crate) enum News {
    /// The peer of a queue pair has proven its backup: the way there.
    Proven(Qpn, Route),
    /// A queue pair sends by this side from now on.
    Moved(Qpn, Side),
    /// A MAD of the manager's came to QP1 of the backup.
    Came(Route, Box<[u8; MAD_LEN]>),
}

/// Where news wait. Without a manager there are none.
#[derive(Default)]
pub(crate) struct ManagerNews(Mutex<Option<Reader>>);

struct Reader {
    news: Vec<News>,
    mads: usize,
    wake: Box<dyn Fn() + Send>,
}

impl ManagerNews {
    /// A manager is there, and is woken by this.
    pub(crate) fn open(&self, wake: impl Fn() + Send + 'static) {
        *lock(&self.0) = Some(Reader { news: Vec::new(), mads: 0, wake: Box::new(wake) });
    }

    /// It is gone.
    pub(crate) fn close(&self) {
        *lock(&self.0) = None;
    }

    pub(crate) fn leave(&self, news: News) {
        let mut reader = lock(&self.0);
        let Some(Reader { news: all, mads, wake }) = &mut *reader else { return };
        if let News::Came(..) = news {
            if *mads == MAX_MADS {
                return;
            }
            *mads += 1;
        }
        all.push(news);
        wake();
    }

    /// All that was left since the last time, in its order.
    pub(crate) fn take(&self) -> Vec<News> {
        let mut reader = lock(&self.0);
        let Some(Reader { news, mads, .. }) = &mut *reader else { return Vec::new() };
        *mads = 0;
        std::mem::take(news)
    }
}
