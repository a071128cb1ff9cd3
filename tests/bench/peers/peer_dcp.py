"""torch.distributed.checkpoint. Usage: peer_dcp.py save|load|async DIR --ranks N ... (work.py)"""

import torch.distributed.checkpoint as dcp

import torch_ranks


class Peer:
    def save(self, folder, state):
        dcp.save(state, checkpoint_id=folder)

    def load(self, folder, state):
        dcp.load(state, checkpoint_id=folder)

    def start(self, folder, state):
        return dcp.async_save(state, checkpoint_id=folder)


if __name__ == "__main__":
    torch_ranks.main(Peer)
