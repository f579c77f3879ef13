"""`m.rad`: a saved profile, made where the model's code is and read where torch is missing.

Reading needs only the standard library (`record`, `choose`); making one needs PyTorch (`calls`, `make`, `table`).
"""
