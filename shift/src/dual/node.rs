//! The Node: frames and time go to the NIC of their port, and connections are checked before frames leave.

use softnic_nic::Nic;
use softnic_wire::failover::Side;
use softnic_wire::{Instant, Layout, Node, TxFrame};

use super::DualNic;

impl Node for DualNic {
    #[inline]
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &mut [u8]) {
        match &mut self.backup {
            None => self.nic.handle_frame(now, port, frame),
            Some(backup) if port == DualNic::BACKUP => {
                match Layout::locate(frame) {
                    Ok(layout) => backup.handle_frame(&mut self.nic, now, frame, layout),
                    // The NIC counts the malformed frame. It reaches no queue pair.
                    Err(_) => backup.nic.handle_frame(now, Nic::WIRE, frame),
                }
            }
            Some(backup) => {
                if backup.agenda.any_unsettled()
                    && let Ok(layout) = Layout::locate(frame)
                {
                    backup.expect_news(Side::Default, frame, &layout);
                }
                self.nic.handle_frame(now, port, frame);
            }
        }
    }

    #[inline]
    fn handle_located(&mut self, now: Instant, port: usize, frame: &mut [u8], layout: Layout) {
        match &mut self.backup {
            None => self.nic.handle_located(now, port, frame, layout),
            Some(backup) if port == DualNic::BACKUP => {
                backup.handle_frame(&mut self.nic, now, frame, layout);
            }
            Some(backup) => {
                if backup.agenda.any_unsettled() {
                    backup.expect_news(Side::Default, frame, &layout);
                }
                self.nic.handle_located(now, port, frame, layout);
            }
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool {
        match &mut self.backup {
            None => self.nic.poll_transmit(now, port, tx),
            Some(backup) => {
                if backup.due || self.nic.has_news() {
                    backup.progress(&mut self.nic, now);
                }
                match port {
                    DualNic::BACKUP => {
                        backup.nic.may_send(Nic::WIRE) && {
                            backup.catch_up(&mut self.nic);
                            backup.nic.poll_transmit(now, Nic::WIRE, tx)
                        }
                    }
                    port => self.nic.poll_transmit(now, port, tx),
                }
            }
        }
    }

    #[inline]
    fn may_transmit(&self, port: usize) -> bool {
        match &self.backup {
            Some(backup) if port == DualNic::BACKUP => {
                backup.due || self.nic.has_news() || backup.nic.may_send(Nic::WIRE)
            }
            _ => true,
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let Some(backup) = &self.backup else { return self.nic.poll_timeout() };
        [self.nic.poll_timeout(), backup.nic.poll_timeout(), backup.agenda.poll_timeout()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.nic.handle_timeout(now);
        if let Some(backup) = &mut self.backup {
            backup.catch_up(&mut self.nic);
            backup.nic.handle_timeout(now);
            backup.agenda.on_time();
            backup.progress(&mut self.nic, now);
        }
    }
}
