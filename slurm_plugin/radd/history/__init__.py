"""Earlier runs: observed peaks, and the models behind them."""
