"""Which way gets the job done in time?"""
