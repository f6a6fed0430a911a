"""The device ``fake_gpu``: a plugin of Paddle's whose memory the host cannot touch."""
