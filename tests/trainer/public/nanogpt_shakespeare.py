out_dir = 'out-shakespeare-char'
batch_size = 64
block_size = 256
learning_rate = 1e-3
max_iters = 5000
