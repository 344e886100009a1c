"""How the launchers of a job find each other: who is in the job, in which order, and when to restart.

round     the result of a rendezvous, and what every kind of it can do
notes     how the ranks of each launcher ended in a round
registry  `make_rendezvous`: which kind --rdzv-backend means, and kinds that users bring
settings  the settings of --rdzv-conf
solo      one launcher alone
static    so many launchers, each with its --node-rank
c10d      launchers that come and go
reach     finds a store that another one serves
waits     what a launcher tells a person while it waits for others
shared    what both do once they have a store, in the main thread
keeper    the thread that keeps a launcher alive in the eyes of the others, and listens to them
board     the agreement in the store
state     the agreement itself, and how it may change; pure
"""
