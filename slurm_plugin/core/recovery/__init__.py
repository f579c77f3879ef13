"""Why a job ended, and what follows."""
