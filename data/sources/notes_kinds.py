"""Kinds of made documents: what they state, in which words, and what is asked about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Layout = Literal["page", "table", "diary", "letter", "chat"]


@dataclass(frozen=True, slots=True)
class Relation:
    """Something that a document states about a subject.

    Args:
        key: of an infobox, or header of a column.
        value: kind of its value (``notes_words.make_values``).
        says: sentences with ``{s}``, the subject, ``{v}``, the value, and ``{a}``, a or an.
        asks: questions with ``{s}``.
        its: questions about the subject of the question before.
        which: questions for the subject with ``{v}``; none if it is never asked so.
    """

    key: str
    value: str
    says: tuple[str, ...]
    asks: tuple[str, ...]
    its: tuple[str, ...]
    which: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of document.

    Args:
        name: of the kind.
        layout: page: about one subject; table: a row each; diary, letter, chat: what
            people write of themselves.
        subject: kind of the subjects' names.
        header: of the column with the subjects.
        titles: of the document, with kinds of values in braces, ``{s}`` the subject of a page.
        relations: what it states.
    """

    name: str
    layout: Layout
    subject: str
    header: str
    titles: tuple[str, ...]
    relations: tuple[Relation, ...]


def relation(key: str, value: str, says: str, asks: str, its: str, which: str = "") -> Relation:
    """Make a relation from wordings, one a line."""
    lines = [tuple(line.strip() for line in text.strip().split("\n")) for text in (says, asks, its)]
    found = tuple(line.strip() for line in which.strip().split("\n") if line.strip())
    return Relation(key, value, lines[0], lines[1], lines[2], found)


def _about(noun: str, of: str, key: str, value: str, says: str, which: str = "") -> Relation:
    """Make a relation that is asked for by a noun."""
    asks = f"""What is {of} {{s}}?
        What's {of} {{s}}?
        Tell me {of} {{s}}.
        Can you find {of} {{s}}?
        Do you know {of} {{s}}?
        I need {of} {{s}}."""
    its = f"""And the {noun}?
        What about the {noun}?
        What is the {noun}?
        And its {noun}?
        How about its {noun}?
        {noun}?"""
    return relation(key, value, says, asks, its, which)


PRODUCT = Kind(
    "product", "page", "product", "Product", ("{s}",),
    (
        relation("Maker", "firm", """{s} is made by {v}.
            {v} builds the {s}.
            The company behind it is {v}.
            It comes from the workshops of {v}.
            {v} has put this model on the market.
            It was developed and is sold by {v}.""", """Who makes the {s}?
            Which firm makes the {s}?
            Which company is behind the {s}?
            What is the manufacturer of the {s}?
            Who is the {s} made by?
            The {s} is a product of which company?""", """Who makes it?
            Which firm builds it?
            And who is the maker?
            And the manufacturer?
            Which company sells it?
            Who is behind it?""", """Which product does {v} make?
            What is made by {v}?
            What does {v} sell?"""),
        _about("price", "the price of the", "Price", "money", """It costs {v}.
            The price is {v}.
            You can buy it for {v}.
            Shops ask {v} for it.
            It is on sale at {v}.
            Expect to pay {v}."""),
        _about("weight", "the weight of the", "Weight", "grams", """It weighs {v}.
            On the scales it comes to {v}.
            The weight is {v} without the box.
            At {v} it is easy to carry.
            Its weight is given as {v}.
            All parts together weigh {v}."""),
        relation("Battery life", "hours", """The battery lasts {v}.
            One charge is enough for {v}.
            It runs for {v} before it has to be charged.
            Fully charged, it works for {v}.
            The battery holds for {v}.
            You get {v} out of a charge.""", """How long does the battery of the {s} last?
            What is the battery life of the {s}?
            How long does the {s} run on one charge?
            For how long can the {s} be used before it is charged?
            How many hours does the {s} run?
            What battery life does the {s} have?""", """And the battery life?
            How long does its battery last?
            How long does it run?
            What about the battery?
            For how long does a charge last?
            And the battery?"""),
        relation("Colour", "colour", """It is sold in {v}.
            The only colour is {v}.
            The housing is {v}.
            It comes in {v}.
            Its colour is {v}.
            The case is painted {v}.""", """What colour is the {s}?
            In which colour is the {s} sold?
            Which colour does the {s} have?
            What is the colour of the {s}?
            What colour does the {s} come in?
            Which colour can I get the {s} in?""", """And the colour?
            What colour is it?
            In which colour does it come?
            What about the colour?
            Which colour does it have?
            And its colour?"""),
        relation("Warranty", "months", """The warranty is {v}.
            It has a warranty of {v}.
            Repairs are free for {v}.
            It is guaranteed for {v}.
            For {v} it is repaired at no cost.
            The guarantee ends after {v}.""", """How long is the warranty of the {s}?
            What warranty does the {s} have?
            For how long is the {s} guaranteed?
            How long are repairs of the {s} free?
            What guarantee comes with the {s}?
            How many months of warranty does the {s} have?""", """And the warranty?
            How long is its warranty?
            What about the guarantee?
            For how long is it guaranteed?
            And the guarantee?
            How long are repairs free?"""),
    ),
)  # fmt: skip
CLUB = Kind(
    "club", "page", "org", "Club", ("{s}", "About the {s}", "{s}: about us"),
    (
        relation("Founded", "year", """The {s} was founded in {v}.
            It has existed since {v}.
            In {v} a few neighbours started it.
            The first members met in {v}.
            It goes back to {v}.
            It was set up in {v}.""", """When was the {s} founded?
            In which year was the {s} founded?
            Since when has the {s} existed?
            When did the {s} start?
            What year does the {s} go back to?
            How long has the {s} been there?""", """When was it founded?
            And when did it start?
            Since when has it existed?
            And the year it was founded?
            When was it set up?
            What year was that?"""),
        relation("President", "person", """{v} is its president.
            The president is {v}.
            It is led by {v}.
            {v} was elected president.
            At its head is {v}.
            {v} chairs it.""", """Who is the president of the {s}?
            Who leads the {s}?
            Who chairs the {s}?
            Who is at the head of the {s}?
            What is the name of the {s}'s president?
            Who was elected president of the {s}?""", """Who leads it?
            And who is the president?
            Who is its president?
            Who is at its head?
            And the president?
            Who chairs it?""", """Which club does {v} lead?
            What is {v} president of?
            Which club is led by {v}?"""),
        relation("Meets in", "hall", """It meets in {v}.
            Members come together in {v}.
            Meetings are held in {v}.
            You find us in {v}.
            The evenings take place in {v}.
            Its home is {v}.""", """Where does the {s} meet?
            Where are the meetings of the {s} held?
            In which building does the {s} meet?
            What is the meeting place of the {s}?
            Where can I find the {s}?
            Where do members of the {s} come together?""", """Where does it meet?
            And where?
            Where are its meetings?
            And the place?
            Where do they meet?
            Where can I find them?"""),
        relation("Meeting day", "weekday", """The meetings are on {v}.
            Everyone comes on {v}.
            {v} is the day of the meetings.
            Guests are welcome on {v}.
            Members come together every {v}.
            The weekly evening is on {v}.""", """On which day does the {s} meet?
            What day does the {s} meet?
            When does the {s} meet?
            Which day of the week does the {s} meet on?
            On what day are the meetings of the {s}?
            Which day are the evenings of the {s}?""", """And on which day?
            What day do they meet?
            On which day of the week?
            And when do they meet?
            Which day is it?
            And the day?"""),
        _about("fee", "the yearly fee of the", "Fee", "money", """The yearly fee is {v}.
            Members pay {v} a year.
            Membership costs {v}.
            A year of membership is {v}.
            For {v} a year you can join.
            The subscription is {v}."""),
        relation("Members", "count", """It has {v} members.
            {v} people belong to it.
            The list of members has {v} names.
            Today there are {v} members.
            Membership stands at {v}.
            It counts {v} members.""", """How many members does the {s} have?
            How many people belong to the {s}?
            What is the number of members of the {s}?
            How large is the {s}?
            How many members are there in the {s}?
            How many are in the {s}?""", """How many members does it have?
            And how many members?
            How large is it?
            How many people belong to it?
            And the number of members?
            How many are there?"""),
    ),
)  # fmt: skip
FIRM = Kind(
    "firm", "page", "firm", "Firm", ("{s}", "{s}: company profile", "Facts about {s}"),
    (
        relation("Founder", "person", """{v} founded the firm.
            It was started by {v}.
            The founder is {v}.
            It began in the garage of {v}.
            {v} set it up.
            Its first owner was {v}.""", """Who founded {s}?
            Who started {s}?
            Who is the founder of {s}?
            By whom was {s} founded?
            Who set up {s}?
            What is the name of the founder of {s}?""", """Who founded it?
            And who started it?
            Who is the founder?
            By whom was it founded?
            And the founder?
            Who set it up?""", """Which firm did {v} found?
            What did {v} found?
            Which company was started by {v}?"""),
        relation("Founded", "year", """It was founded in {v}.
            The firm dates from {v}.
            It opened in {v}.
            Its history begins in {v}.
            Work began in {v}.
            The register of firms has it since {v}.""", """When was {s} founded?
            In what year was {s} founded?
            When did {s} open?
            Since when has {s} existed?
            When does the history of {s} begin?
            What year was {s} started in?""", """And when?
            When was it founded?
            In which year?
            When was that?
            And the year?
            Since when has it existed?"""),
        relation("Head office", "town", """The head office is in {v}.
            It is based in {v}.
            Its seat is {v}.
            The firm has its headquarters in {v}.
            It is run from {v}.
            You find the main building in {v}.""", """Where is {s} based?
            Where is the head office of {s}?
            In which town is {s}?
            What is the seat of {s}?
            Where are the headquarters of {s}?
            From where is {s} run?""", """Where is it based?
            And where is its head office?
            Where is that?
            In which town?
            And the head office?
            Where are the headquarters?""", """Which firm is based in {v}?
            Which company has its head office in {v}?
            What firm is in {v}?"""),
        relation("Employees", "number", """It has {v} employees.
            {v} people work there.
            It gives work to {v} people.
            The staff numbers {v}.
            Its workforce is {v}.
            {v} people are on the payroll.""", """How many employees does {s} have?
            How many people work for {s}?
            How large is the staff of {s}?
            What is the number of employees of {s}?
            How many people does {s} employ?
            How many work at {s}?""", """How many employees does it have?
            How many people work there?
            And the number of employees?
            How large is its staff?
            And how many employees?
            What about its staff?"""),
        relation("Main product", "good", """Its best-known product is the {v}.
            It is known for its {v}.
            Most of the sales come from the {v}.
            The firm became famous with {a} {v}.
            What sells best is the {v}.
            Its main product is the {v}.""", """What is {s} known for?
            What is the main product of {s}?
            What does {s} sell most of?
            Which product made {s} famous?
            What is the best-known product of {s}?
            What sells best at {s}?""", """What is it known for?
            And its main product?
            What does it sell?
            Which product made it famous?
            And what is its best-known product?
            What sells best?"""),
    ),
)  # fmt: skip
EVENT = Kind(
    "event", "page", "event", "Event", ("{s}", "{s}: programme", "Invitation: {s}"),
    (
        relation("Date", "date", """The {s} is on {v}.
            It takes place on {v}.
            Come on {v}.
            Keep {v} free.
            The date is {v}.
            Everything begins on {v}.""", """When is the {s}?
            On what date is the {s}?
            What is the date of the {s}?
            When does the {s} take place?
            On which day is the {s} held?
            What date is the {s} on?""", """When is it?
            And when?
            On what date?
            And the date?
            When does it take place?
            What date is that?"""),
        relation("Venue", "hall", """The venue is {v}.
            It is held in {v}.
            Everybody meets at {v}.
            This year it moves to {v}.
            It takes place at {v}.
            The doors of {v} are open to all.""", """Where is the {s} held?
            Where does the {s} take place?
            What is the venue of the {s}?
            At which place is the {s}?
            In which building is the {s}?
            Where do people meet for the {s}?""", """And where?
            Where is it held?
            What is the venue?
            Where does it take place?
            And the place?
            Where is that?""", """What takes place at {v}?
            Which event is held in {v}?
            What is on at {v}?"""),
        relation("Start", "time", """It starts at {v}.
            The first item is at {v}.
            Doors open at {v}.
            We begin at {v}.
            The opening is at {v}.
            Be there at {v}.""", """At what time does the {s} start?
            When do the doors open for the {s}?
            What time is the opening of the {s}?
            What time does the {s} begin?
            At what hour does the {s} begin?
            What is the starting time of the {s}?""", """At what time?
            What time does it start?
            And the time?
            When does it begin?
            And what time do the doors open?
            What is the starting time?"""),
        _about("ticket price", "the ticket price of the", "Tickets", "money", """A ticket costs {v}.
            Tickets are {v}.
            Entry is {v}.
            You pay {v} at the door.
            Seats can be had for {v}.
            Admission: {v}."""),
        relation("Guest", "person", """{v} is the guest of honour.
            This year's guest is {v}.
            We are proud to have {v} with us.
            {v} opens it.
            The opening speech is by {v}.
            {v} will speak first.""", """Who is the guest of the {s}?
            Who opens the {s}?
            Who speaks at the {s}?
            Which guest comes to the {s}?
            Who is the guest of honour at the {s}?
            Who gives the speech at the {s}?""", """Who is the guest?
            And who opens it?
            Who speaks there?
            And the guest of honour?
            Who will speak?
            Who is invited?""", """Where does {v} speak?
            Which event does {v} open?
            What is {v} the guest of?"""),
    ),
)  # fmt: skip
MEETING = Kind(
    "meeting", "page", "meeting", "Meeting",
    ("Minutes of the {s}", "Notes on the {s}", "Protocol: {s}"),
    (
        relation("Chair", "person", """{v} opened the meeting and led it.
            {v} took the chair.
            In the chair: {v}.
            The meeting was led by {v}.
            {v} welcomed the members and chaired.
            As agreed, {v} was in the chair.""", """Who chaired the {s}?
            Who led the {s}?
            Who was in the chair at the {s}?
            Who opened the {s}?
            By whom was the {s} led?
            Who was the chair of the {s}?""", """Who chaired it?
            And who led it?
            Who was in the chair?
            And the chair?
            Who opened it?
            By whom was it led?""", """What did {v} chair?
            Which meeting was led by {v}?
            At which meeting was {v} in the chair?"""),
        relation("Minutes by", "person", """{v} wrote the minutes.
            The minutes were kept by {v}.
            Minutes: {v}.
            {v} took notes.
            {v} was asked to write everything down.
            As secretary, {v} kept the record.""", """Who wrote the minutes of the {s}?
            Who took notes at the {s}?
            Who kept the record of the {s}?
            By whom are the minutes of the {s}?
            Who was the secretary at the {s}?
            Who wrote things down at the {s}?""", """And who wrote the minutes?
            Who took notes?
            And the minutes?
            Who was the secretary?
            Who kept the record?
            By whom are the minutes?"""),
        relation("Place", "hall", """We met in {v}.
            The meeting took place in {v}.
            {v} was the place, as the club room is being painted.
            This time everyone came to {v}.
            The members gathered in {v}.
            Place: {v}.""", """Where was the {s}?
            Where did the {s} take place?
            In which building was the {s} held?
            What was the place of the {s}?
            Where did people gather for the {s}?
            Where was the {s} held?""", """And where was it?
            Where did it take place?
            Where was that?
            In which building?
            And the place?
            Where did they gather?"""),
        relation("Present", "count", """{v} members were present.
            {v} people came.
            The list of those present has {v} names.
            With {v} present, votes could be taken.
            There were {v} of us.
            {v} signed the list at the door.""", """How many were present at the {s}?
            How many people came to the {s}?
            How many members attended the {s}?
            What was the attendance of the {s}?
            How many were at the {s}?
            How many people took part in the {s}?""", """And how many were present?
            How many came?
            How many attended it?
            And the attendance?
            How many were there?
            How many people took part?"""),
        relation("Granted", "money", """A sum of {v} was granted for repairs.
            The members agreed to spend {v} on the hall.
            {v} will be paid out of the reserve.
            For new equipment {v} was approved.
            All but one voted to spend {v}.
            The treasurer may spend up to {v}.""", """How much money did the {s} approve?
            What sum was granted at the {s}?
            How much did the {s} agree to spend?
            How much may be spent after the {s}?
            Which sum was voted for at the {s}?
            What amount did members approve at the {s}?""", """And how much was granted?
            How much did they approve?
            What sum was it?
            How much may be spent?
            And the sum?
            How much money was voted for?"""),
        relation("Next meeting", "date", """The next meeting is on {v}.
            We meet again on {v}.
            Next time: {v}.
            The date of the next meeting was set to {v}.
            On {v} there is another meeting.
            Everyone noted {v} for the next one.""", """When is the next meeting after the {s}?
            What date was set at the {s} for the next one?
            On which day do they meet again after the {s}?
            When will they meet again after the {s}?
            Which date did the {s} set for the next meeting?
            What is the date of the meeting that follows the {s}?""", """And when is the next one?
            When do they meet again?
            What date was set for the next one?
            And the next meeting?
            On which day is the next one?
            When is the one after that?"""),
    ),
)  # fmt: skip
PRICES = Kind(
    "prices", "table", "good", "Item",
    ("Price list of {firm}", "Prices {recent}", "Stock of {firm}", "Catalogue, {date}"),
    (
        relation("Price", "money", "", """How much is the {s}?
            What does the {s} cost?
            What is the price of the {s}?
            How much do they ask for the {s}?
            What would I pay for the {s}?
            The {s} costs how much?""", """And the price?
            How much is it?
            What does it cost?
            What is the price?
            And how much is that?
            What would I pay?""", """What costs {v}?
            Which item is {v}?
            What can I buy for {v}?"""),
        relation("Size", "size", "", """How large is the {s}?
            What size is the {s}?
            What is the size of the {s}?
            Which size does the {s} have?
            How many centimetres does the {s} measure?
            How big is the {s}?""", """And the size?
            How large is it?
            What size is it?
            What about the size?
            How big is it?
            And how large?"""),
        relation("In stock", "count", "", """How many of the {s} are in stock?
            What is the stock of the {s}?
            How many pieces of the {s} are left?
            How many of the {s} do they have?
            How much stock is there of the {s}?
            How many of the {s} could I buy?""", """And how many are in stock?
            How many are left?
            What about the stock?
            How many do they have?
            And the stock?
            How many pieces are there?"""),
        relation("Supplier", "person", "", """Who supplies the {s}?
            From whom does the {s} come?
            Who is the supplier of the {s}?
            Who delivers the {s}?
            Whose product is the {s}?
            Who do they get the {s} from?""", """And the supplier?
            Who supplies it?
            From whom does it come?
            Who delivers it?
            And who is the supplier?
            Who do they get it from?""", """What does {v} supply?
            Which item comes from {v}?
            What is delivered by {v}?"""),
    ),
)  # fmt: skip
TIMETABLE = Kind(
    "timetable", "table", "town", "To",
    ("Departures from {town}", "Bus timetable, {weekday}", "Trains from {town}", "Ferries"),
    (
        relation("Departs", "time", "", """When does the one to {s} leave?
            At what time is the departure to {s}?
            When is the departure for {s}?
            What time does it leave for {s}?
            When do I have to leave for {s}?
            When can I go to {s}?""", """When does it leave?
            And the departure?
            At what time does it depart?
            What time does it go?
            When is the departure?
            And when does it go?""", """Where does the one at {v} go?
            What is the destination of the departure at {v}?
            Where can I go at {v}?"""),
        relation("Arrives", "time", "", """When do I arrive in {s}?
            At what time does it arrive in {s}?
            When is the arrival in {s}?
            What time am I in {s}?
            What is the arrival time in {s}?
            When will we be in {s}?""", """And when does it arrive?
            At what time does it arrive?
            And the arrival?
            When is it there?
            When am I there?
            What is the arrival time?"""),
        relation("Platform", "platform", "", """Which platform does the one to {s} leave from?
            From which platform do I go to {s}?
            What is the platform for {s}?
            Where does the one for {s} stop?
            At which platform is the departure to {s}?
            Which platform is it for {s}?""", """And the platform?
            Which platform?
            From which platform?
            What is the platform?
            At which platform is it?
            Where does it stop?"""),
        relation("Fare", "money", "", """What is the fare to {s}?
            How much is it to {s}?
            What does a ticket to {s} cost?
            How much does it cost to go to {s}?
            What do I pay to go to {s}?
            How expensive is the ticket to {s}?""", """And the fare?
            What is the fare?
            How much is the ticket?
            What does it cost?
            What do I pay?
            And the ticket?"""),
    ),
)  # fmt: skip
TASKS = Kind(
    "tasks", "table", "task", "Task",
    ("Minutes of the {org}", "Minutes, {date}", "{org}: meeting of {date}", "To do, {org}"),
    (
        relation("Who", "person", "", """Who takes care of the {s}?
            Who is responsible for the {s}?
            Who does the {s}?
            Who has the {s}?
            Who was given the {s}?
            Whose task is the {s}?""", """And who does it?
            Who is responsible?
            Who takes care of it?
            Whose task is it?
            Who was asked to do it?
            And who?""", """What does {v} do?
            What is the task of {v}?
            What was {v} asked to take care of?"""),
        relation("Due", "date", "", """When is the {s} due?
            By when must the {s} be done?
            What is the deadline for the {s}?
            Until when is there time for the {s}?
            When does the {s} have to be finished?
            What date is the {s} due?""", """And when is it due?
            By when?
            What is the deadline?
            And the deadline?
            When must it be done?
            Until when?"""),
        relation("Cost", "money", "", """What does the {s} cost?
            How much is planned for the {s}?
            What is the budget of the {s}?
            How much may the {s} cost?
            What is the cost of the {s}?
            How much money is there for the {s}?""", """And the cost?
            How much may it cost?
            What does it cost?
            How much is planned for it?
            And the budget?
            How much money is there?"""),
    ),
)  # fmt: skip
STAFF = Kind(
    "staff", "table", "person", "Name",
    ("Staff of {firm}", "{firm}: who is who", "Contacts, {recent}"),
    (
        relation("Role", "job", "", """What does {s} do?
            What is the job of {s}?
            What does {s} work as?
            Which role does {s} have?
            What is {s}'s role?
            As what does {s} work?""", """And the role?
            What is the job?
            As what?
            And the job?
            Which role is it?
            What kind of work is that?""", """Who is the {v}?
            Who works as {v}?
            What is the name of the {v}?"""),
        relation("Room", "room", "", """In which room is {s}?
            Where does {s} sit?
            What is the room of {s}?
            Which office does {s} have?
            Where do I find {s}?
            What room is {s} in?""", """And the room?
            In which room?
            Where is that?
            Which office?
            And the office?
            What room is it?"""),
        relation("Extension", "phone", "", """What is the extension of {s}?
            What is {s}'s phone number?
            Under which number can I reach {s}?
            How do I reach {s} by phone?
            Which extension does {s} have?
            What number should I call for {s}?""", """And the extension?
            What is the number?
            And the phone number?
            Which number should I call?
            And by phone?
            Which extension?"""),
        relation("Since", "joined", "", """Since when has {s} been there?
            When did {s} join?
            In which year did {s} start?
            What year did {s} begin to work there?
            Since which year does {s} work there?
            When did {s} come to the firm?""", """Since when?
            And since when?
            Which year was that?
            When did that begin?
            And the year of joining?
            In which year?"""),
    ),
)  # fmt: skip
TRIP = Kind(
    "trip", "table", "town", "Stop", ("Trip of the {org}", "Our tour", "Itinerary {recent}"),
    (
        relation("Date", "date", "", """When are they in {s}?
            On what date do they reach {s}?
            What is the date of the stop in {s}?
            When is the stop in {s}?
            On which day does the trip get to {s}?
            What day is planned for {s}?""", """And when?
            On what date?
            And the date?
            When is that?
            What date is it?
            When do they get there?"""),
        relation("Hotel", "house", "", """Where do they stay in {s}?
            Which hotel is booked in {s}?
            In which hotel do they sleep in {s}?
            What is the name of the hotel in {s}?
            Where is the night in {s} spent?
            What house are they in while in {s}?""", """And the hotel?
            Where do they stay?
            Which hotel is booked?
            Where do they sleep?
            In which hotel?
            Where is the night spent?""", """In which town is {v}?
            Where is {v}?
            At which stop do they stay at {v}?"""),
        relation("Distance", "km", "", """How far is it to {s}?
            What is the distance to {s}?
            How many kilometres is the way to {s}?
            How long is the leg to {s}?
            How far do they go for {s}?
            How many km is the stage to {s}?""", """And how far is it?
            How many kilometres?
            What is the distance?
            How long is the way?
            And the distance?
            How far do they go?"""),
        relation("Guide", "person", "", """Who guides them in {s}?
            Who is the guide in {s}?
            Who shows them around {s}?
            What is the name of the guide in {s}?
            Who leads the walk in {s}?
            Who meets them in {s}?""", """And the guide?
            Who guides them there?
            Who shows them around?
            Who leads the walk?
            And who is the guide?
            Who meets them there?""", """Where is {v} the guide?
            Which town does {v} show them?
            In which town does {v} lead them?"""),
    ),
)  # fmt: skip
_LIFE = (
    relation(
        "moved",
        "town",
        """I moved to {v} last month.
        We have a flat in {v} now.
        My new home is in {v}.
        I live in {v} these days.
        The boxes are unpacked and {v} is home.
        I have left the old place and found a room in {v}.""",
        """Where does {s} live?
        Which town did {s} move to?
        What town is {s} living in?
        Where is {s}'s new home?
        Where did {s} move?
        In which town is {s} at home?""",
        """And where is the new home?
        Where is that flat?
        Which town is home now?
        And the town?
        In which town?
        And the new home?""",
        """Who lives in {v}?
        Who moved to {v}?
        Who has a home in {v}?""",
    ),
    relation(
        "job",
        "job",
        """I work as {a} {v} now.
        They took me on as {a} {v}.
        My new job is {v}, which I enjoy.
        Since spring I have been earning my money as {a} {v}.
        I start as {a} {v} next week.
        I am training as {a} {v}.""",
        """What does {s} work as?
        What is {s}'s job?
        What work does {s} do?
        How does {s} earn money?
        Which job has {s} found?
        As what does {s} work?""",
        """And the job?
        What about work?
        Which job is it?
        What kind of work is that?
        And work?
        As what?""",
        """Who works as {a} {v}?
        Who is the {v}?
        Who took a job as {a} {v}?""",
    ),
    relation(
        "hobby",
        "hobby",
        """I have taken up {v}.
        On weekends I do {v}.
        I go to a course in {v}.
        My evenings belong to {v}.
        I am quite good at {v} by now.
        A friend got me into {v}.""",
        """What is {s}'s hobby?
        What has {s} taken up?
        What does {s} do in the free time?
        Which hobby does {s} have?
        What does {s} do for fun?
        Which course does {s} go to?""",
        """And the hobby?
        What about free time?
        And on weekends?
        Which hobby?
        And for fun?
        What is the hobby?""",
        """Who does {v}?
        Who has taken up {v}?
        Who is into {v}?""",
    ),
    relation(
        "pet",
        "pet",
        """Our cat is called {v}.
        We have a puppy, {v}.
        I got a kitten and named it {v}.
        {v}, my dog, sleeps on the sofa.
        The new rabbit answers to {v}.
        I walk the dog, {v}, before breakfast.""",
        """What is the name of {s}'s pet?
        What is {s}'s pet called?
        How did {s} name the pet?
        Which pet does {s} have, by name?
        What does {s} call the animal at home?
        What name did {s} give the pet?""",
        """And the pet's name?
        What is the pet called?
        And the pet?
        What about the animal at home?
        What name has the pet?
        And the name of the animal?""",
        """Whose pet is {v}?
        Who does {v} belong to?
        Who has {v} at home?""",
    ),
    relation(
        "bought",
        "present",
        """I bought {a} {v} today.
        I treated myself to {a} {v}.
        At the market I found {a} {v} and took it home.
        My savings went into {a} {v}.
        I could not resist and bought {a} {v}.
        The {v} that I ordered has come.""",
        """What did {s} buy?
        What has {s} bought?
        What did {s} spend money on?
        What did {s} get?
        Which thing did {s} buy?
        What new thing does {s} have?""",
        """And what was bought?
        What about shopping?
        Anything bought?
        And the new thing?
        What was the money spent on?
        What was it that was bought?""",
        """Who bought the {v}?
        Who has {a} {v} now?
        Who got the {v}?""",
    ),
    relation(
        "arrives",
        "time",
        """My train gets in at {v}.
        I will be with you at {v}.
        Expect me at {v}.
        I arrive at {v}, if all goes well.
        Please fetch me at {v}.
        The bus that I take is there at {v}.""",
        """When does {s} arrive?
        At what time will {s} be there?
        What time does {s} arrive?
        When is {s} expected?
        At what time should {s} be fetched?
        When does {s} get in?""",
        """And the arrival?
        At what time?
        What time is the arrival?
        And when is the arrival?
        What about the time?
        At what time is that?""",
    ),
    relation(
        "appointment",
        "date",
        """The dentist can see me on {v}.
        My exam is on {v}.
        I have put the move down for {v}.
        The operation will be on {v}.
        We marry on {v}.
        My holiday starts on {v}.""",
        """Which date does {s} mention?
        What date matters to {s}?
        On which day does {s} have something planned?
        What date has {s} written down?
        Which day did {s} name?
        What is the date in {s}'s plans?""",
        """And the date?
        On which day?
        What date was named?
        Which date is it?
        What about the date?
        And the day that was named?""",
    ),
)
DIARY = Kind(
    "diary", "diary", "person", "", ("Diary of {s}", "{s}'s diary", "Notebook, {s}"), _LIFE
)
LETTER = Kind("letter", "letter", "person", "", ("Letter from {s}", "Letter of {s}, {date}"), _LIFE)
CHAT = Kind("chat", "chat", "person", "", ("Chat, {date}", "Group chat {org}", "Messages"), _LIFE)
KINDS = (
    PRODUCT, CLUB, FIRM, EVENT, MEETING, PRICES, TIMETABLE, TASKS, STAFF, TRIP, DIARY, LETTER, CHAT,
)  # fmt: skip
