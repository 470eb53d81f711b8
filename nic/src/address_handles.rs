//! Address handles. Their names are not reused soon.

use std::collections::VecDeque;
use std::net::IpAddr;

use softnic_transports::AhId;
use softnic_transports::memory::PdId;
use softnic_wire::Template;

/// An address handle: the header template of datagrams to one destination.
pub(crate) struct AddressHandle {
    pub(crate) pd: PdId,
    pub(crate) template: Template,
    /// The destination.
    pub(crate) to: IpAddr,
    /// The port of the [`Node`](softnic_wire::Node) by which the datagrams leave.
    pub(crate) port: usize,
    /// The destination is a group, of which queue pairs of this NIC may be members.
    pub(crate) multicast: bool,
}

/// All address handles. A name is not reused soon, so that a datagram that waits for a destroyed handle is not sent to another destination.
#[derive(Default)]
pub(crate) struct AddressHandles {
    /// Each slot, with the number of times that its handle was destroyed.
    places: Vec<(u32, Option<AddressHandle>)>,
    /// Slots without a handle; the one that has been free longest comes first.
    free: VecDeque<u32>,
}

impl AddressHandles {
    /// The bits of a name that are its slot; the other bits are the generation.
    const PLACE_BITS: u32 = 20;

    pub(crate) fn insert(&mut self, handle: AddressHandle) -> Option<AhId> {
        let place = match self.free.pop_front() {
            Some(place) => place as usize,
            None if self.places.len() >> Self::PLACE_BITS != 0 => return None,
            None => {
                self.places.push((0, None));
                self.places.len() - 1
            }
        };
        let (count, slot) = &mut self.places[place];
        *slot = Some(handle);
        Some(AhId(*count << Self::PLACE_BITS | place as u32))
    }

    /// The slot of a handle, if the handle exists.
    #[inline]
    fn place(&self, AhId(id): AhId) -> Option<usize> {
        let place = id as usize & ((1 << Self::PLACE_BITS) - 1);
        let (count, slot) = self.places.get(place)?;
        (slot.is_some() && *count << Self::PLACE_BITS == id & !((1 << Self::PLACE_BITS) - 1)).then_some(place)
    }

    #[inline]
    pub(crate) fn get(&self, id: AhId) -> Option<&AddressHandle> {
        self.places[self.place(id)?].1.as_ref()
    }

    pub(crate) fn remove(&mut self, id: AhId) -> Option<AddressHandle> {
        let place = self.place(id)?;
        let (count, slot) = &mut self.places[place];
        *count = count.wrapping_add(1);
        self.free.push_back(place as u32);
        slot.take()
    }

    /// All address handles.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut AddressHandle> {
        self.places.iter_mut().filter_map(|(_, handle)| handle.as_mut())
    }

    pub(crate) fn any_in(&self, pd: PdId) -> bool {
        self.places.iter().any(|(_, h)| h.as_ref().is_some_and(|h| h.pd == pd))
    }
}
