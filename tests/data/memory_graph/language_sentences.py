"""Sentences as people note them: 100 in English, and 100 in 25 other languages."""

ENGLISH = """
Anna lives in Gdynia.
Piotr opened the bridge in 2019.
Cem moved to Oslo.
Zoe likes pasta.
Meeting moved.
Ben sells maps.
Marta hates olives.
The release is on Friday.
My name is Piotr and I live in Gdynia.
Lena married Omar in Rome.
I adopted a cat.
Call mum.
Karol works at Siemens.
Her favourite colour is green.
Jean-Pierre Dupont owns a vineyard in Bordeaux.
Giulia speaks Italian and German.
Hans Müller repairs violins in Köln.
She quit.
Budget: 400 euros.
Dentist on Tuesday at 9.
Łukasz Żak won the race.
Paula is allergic to peanuts.
Milan beat Inter 2-1.
The Burj Khalifa is 828 m high.
José María Aznar visited Buenos Aires.
Tea, not coffee.
We moved from São Paulo to Lisbon in May.
Toyota released the Corolla in 1966.
Emma plays the cello.
Dad retired.
Amélie studied in Aix-en-Provence.
El Niño returned in 2023.
Kraftwerk released Autobahn in 1974.
La La Land won six Oscars.
Les Misérables ran for years.
Der Spiegel is a magazine.
Nadia teaches chemistry.
I prefer trains.
Flight LO281 departs at noon.
Ivan Petrov manages Gazprom Neft.
Tomatoes need sun.
Password changed.
Åsa Lindqvist was born in Malmö.
Kenji bought a Yamaha.
No nuts for Lea.
Rosa sings alto.
Sibelius composed Finlandia.
Dinner with Tom.
Björk performed in Reykjavík.
Rent went up again.
Erik drives a Volvo.
Karin painted the fence red.
Ana paints.
Vegan since 2020.
Oskar weighs 80 kg.
Marie Curie discovered polonium.
Fatima prays.
Sushi tonight?
He broke his arm.
Aunt Olga bakes poppy seed cake.
Real Madrid signed Luka Modrić.
Paris Saint-Germain lost.
Nobody answered.
Wi-Fi code is hanging on the fridge.
Mateusz Morawiecki resigned.
Visa expires in June.
Santiago de Compostela attracts pilgrims.
Lars and Ingrid divorced.
Sofia graduated.
Sofia is the capital of Bulgaria.
Monica chairs Deutsche Bank.
Project Falcon slipped.
Pedro Almodóvar directed Volver.
Nina has two sons.
Ali runs marathons.
Don't feed the fish.
Gym on Mondays.
They adopted Mia.
Server rebooted twice.
Juan loves tango.
Maria Skłodowska met Pierre in Paris.
Uncle Bob died.
Rain again.
Ravi codes in Rust.
Lufthansa cancelled flight LH441.
Simone likes Chopin.
Pablo Neruda wrote Veinte poemas de amor.
Dog needs walking.
Elena Ferrante lives in Napoli.
Mr Tanaka prefers email.
Hotel Adlon is booked.
Kasia got promoted.
Ghent hosts Gentse Feesten.
Sana designed Casa Verde.
Tom snores.
Wojtek's car is a Škoda.
Leo moved out.
Camille collects stamps.
Marek fixes bikes.
Guido van Rossum created Python.
""".strip().splitlines()

OTHERS = {
    "Polish": """
Anna mieszka w Gdyni i pracuje w porcie.
Wczoraj byliśmy z Markiem w kinie.
Mój brat nie lubi oliwek.
Spotkanie przesunięto na piątek.
Kasia ma dwa koty.
Nazywam się Piotr.
Babcia piecze makowiec.
Gdzie są klucze do piwnicy?
Nie mam czasu.
""",
    "German": """
Hans wohnt seit 2010 in Hamburg.
Meine Schwester arbeitet im Krankenhaus.
Der Zug fährt um acht Uhr ab.
Wir haben gestern einen Hund gekauft.
Ich mag keinen Kaffee.
Das Treffen wurde verschoben.
Er spricht fließend Spanisch.
Ihr Büro liegt neben dem Bahnhof.
""",
    "French": """
Camille habite à Lyon avec ses deux enfants.
Le pont a été ouvert en 2019.
Je n'aime pas les champignons.
Mon frère travaille dans une banque.
Nous partons en vacances demain.
La réunion est reportée à jeudi.
Il pleut encore.
Ma tante vend des fleurs au marché.
""",
    "Spanish": """
Pablo vive en Sevilla desde hace tres años.
Mi hermana trabaja en un hospital.
No me gustan las aceitunas.
El puente se abrió en 2019.
Mañana vamos a la playa.
¿Dónde está la llave?
Lucía enseña música a los niños.
""",
    "Italian": """
Giulia abita a Torino e insegna chimica.
Il ponte è stato aperto nel 2019.
Non mi piacciono le olive.
Mio fratello lavora in banca.
Domani andiamo al mare.
Luca ha comprato una bicicletta usata.
""",
    "Portuguese": """
O João mora em Coimbra com a família.
A reunião foi adiada para quinta-feira.
Eu não gosto de azeitonas.
Ontem comprámos um cão.
Minha irmã trabalha no hospital.
""",
    "Dutch": """
Sanne woont in Utrecht en werkt bij de gemeente.
Ik hou niet van olijven.
De brug is in 2019 geopend.
Mijn broer heeft twee katten.
Morgen vertrekken wij naar Gent.
""",
    "Swedish": """
Åsa bor i Malmö och arbetar på sjukhuset.
Jag tycker inte om oliver.
Mötet har flyttats till fredag.
Min bror har två katter.
""",
    "Danish": """
Mette bor i Aarhus og arbejder på havnen.
Jeg kan ikke lide oliven.
Broen blev åbnet i 2019.
""",
    "Finnish": """
Aino asuu Turussa ja työskentelee satamassa.
En pidä oliiveista.
Kokous siirrettiin perjantaihin.
""",
    "Czech": """
Jana bydlí v Brně a pracuje v nemocnici.
Nemám rád olivy.
Schůzka se přesouvá na pátek.
Můj bratr má dvě kočky.
""",
    "Hungarian": """
Zsófia Szegeden lakik és a kikötőben dolgozik.
Nem szeretem az olajbogyót.
A hidat 2019-ben nyitották meg.
""",
    "Romanian": """
Ioana locuiește în Cluj și lucrează la spital.
Nu îmi plac măslinele.
Podul a fost deschis în 2019.
""",
    "Turkish": """
Cem Ankara'da yaşıyor ve limanda çalışıyor.
Zeytin sevmiyorum.
Toplantı cumaya ertelendi.
Kardeşimin iki kedisi var.
""",
    "Indonesian": """
Dewi tinggal di Bandung dan bekerja di pelabuhan.
Saya tidak suka zaitun.
Rapat ditunda sampai hari Jumat.
""",
    "Vietnamese": """
Lan sống ở Huế và làm việc tại cảng.
Tôi không thích ô liu.
""",
    "Russian": """
Анна живёт в Казани и работает в порту.
Я не люблю оливки.
Мост открыли в 2019 году.
Встреча перенесена на пятницу.
""",
    "Ukrainian": """
Оксана мешкає у Львові та працює в лікарні.
Мій брат має двох котів.
""",
    "Greek": """
Η Ελένη μένει στην Πάτρα.
Δεν μου αρέσουν οι ελιές.
""",
    "Japanese": """
健太は大阪に住んでいます。
会議は金曜日に延期されました。
オリーブは好きではありません。
""",
    "Chinese": """
小明住在杭州,在港口工作。
我不喜欢橄榄。
会议推迟到星期五。
""",
    "Korean": """
지민은 부산에 살고 있어요.
저는 올리브를 좋아하지 않아요.
""",
    "Arabic": """
تعيش ليلى في الإسكندرية وتعمل في الميناء.
لا أحب الزيتون.
تم تأجيل الاجتماع إلى يوم الجمعة.
""",
    "Hebrew": """
נועה גרה בחיפה ועובדת בנמל.
אני לא אוהב זיתים.
""",
    "Hindi": """
राहुल पुणे में रहता है।
मुझे जैतून पसंद नहीं है।
""",
}
"""By the language's English name."""
FOREIGN = [
    (language, sentence)
    for language, text in OTHERS.items()
    for sentence in text.strip().splitlines()
]
