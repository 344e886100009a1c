"""How the launchers of a job find each other: who takes part, in which order, and when to start anew.

round       what a rendezvous comes to, and what every kind of it can do
"""
