"""`m.rad`: a ready profile in a file, made where the model's code is and read where torch is not.

Reading needs the standard library alone (`record`, `choose`); making one needs PyTorch (`calls`, `make`, `table`).
"""
